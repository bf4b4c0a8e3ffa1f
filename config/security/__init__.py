"""The settings of security: their keys and values, and the combinations that a start refuses.

Refuses to know sockets, files and credentials. `broker.security` and `config.load` import it.
"""
