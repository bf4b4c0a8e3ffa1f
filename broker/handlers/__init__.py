"""One module per API: request value in, response value out; independent of one another."""
