"""Data directories written by earlier commits, which every later commit must open.

`directories/NAME.tar.xz` holds a directory as a broker left it and beside it `expected.json`: what
the broker said of its contents before it stopped (`contents`). `write` makes such a pair with the
code of the checkout it runs in, `later` those of younger features; pairs are added when a format
grows and are never made again.
"""
