"""How messages are declared, and how codecs are made from the declarations.

Owns the field kinds (`primitives`), the plan of a message (`layout`), the explaining codec
(`schema`, by construct) and the fast one (`compiled`, straight-line code). Knows no single message.

Only `protocol` makes declarations and codecs. Outside it, `primitives` alone is imported, for types
and for what a declaration says: by `broker.net`, `broker.handlers`, `broker.requests`,
`broker.rights` and `broker.workers`, by `client.core`, and by `storage.kafka`.
"""
