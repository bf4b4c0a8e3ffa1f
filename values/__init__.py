"""How values are declared, and the few values that every package may ask for.

Owns the decorator of all classes of values that a start imports, the version, and limits that
several packages check. Imports no other package, and all others may import it.
"""
