"""HTTP of the console: who may ask, which questions there are, how answers and refusals look.

Owns paths, users, rights and the bounds of parameters. Asks `console.data` for everything else; the
pages in `console/static` are its only clients. Imported by `console.serve`, and by the CLI to add
users.
"""
