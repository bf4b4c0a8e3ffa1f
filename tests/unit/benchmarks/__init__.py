"""Tests of what the benchmarks make of their figures; the loads are for `make bench-smoke`."""
