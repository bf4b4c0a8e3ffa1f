"""Programs that show what Tidelog does with real data; `make demo` runs `demo.flights`."""
