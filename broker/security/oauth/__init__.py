"""OAUTHBEARER: users prove who they are by a token of an identity provider.

The broker knows no passwords of these users. It reads the provider's public keys (`keys`), checks
that a token is signed by one of them and meant for this broker (`tokens`), and takes the name of
the user out of it (`exchange`).

Imported only where a listener offers the mechanism: it needs PyJWT, which is an extra.
"""
