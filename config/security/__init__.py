"""The settings of security: their keys and values, and the combinations that a start refuses.

Refuses to know sockets, files and credentials. Imported by `config` and by the parts of the broker
and the CLI that serve listeners.
"""
