"""How messages are declared, and how codecs are made from the declarations.

Owns the field kinds (`primitives`), the plan of a message (`layout`), the explaining codec
(`schema`, by construct) and the fast one (`compiled`, straight-line code). Knows no single message.
Imported by `protocol` alone.
"""
