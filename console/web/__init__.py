"""HTTP of the console: who may ask, which questions there are, how answers and refusals look."""
