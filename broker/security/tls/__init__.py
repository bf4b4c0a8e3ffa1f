"""TLS of the broker: keys and certificates in every format, and the names in certificates.

Owns the contexts that listeners shake hands with, reading stores (PEM, PKCS12, JKS), what a
certificate says, and the rules that make its subject a user. Refuses to know connections and SASL.

`broker.security.service`, `broker.net.acceptor` and `broker.jobs.certificates` import from here.
"""
