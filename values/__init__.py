"""How values are declared, and the one value that every package may ask for.

Owns the decorator of all classes of values that a start imports, and the version. Imports
no other package, and all others may import it.
"""
