"""GSSAPI: users prove who they are by a ticket of Kerberos.

The broker has a key of its own in a keytab, and turns the principals of its clients into names of
users by rules (`names`). MIT Kerberos does the rest (`exchange`).

Imported only where a listener offers the mechanism: it needs the package gssapi, which is an extra.
"""
