"""How values are declared: the decorator of all classes of values that a start imports.

Owns nothing but that; imports no other package, and all others may import it.
"""
