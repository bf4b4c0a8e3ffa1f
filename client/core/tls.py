"""The TLS context of a client, from PEM files.

Imported by the connections only when TLS is on: `ssl` is slow to import.
"""

import os
import ssl

from client.core.options import Security
from client.errors import InvalidUse


class BadFile(InvalidUse):
    """A file of `Security` that cannot be used; `field` is its field's name."""

    def __init__(self, field: str, path: str, problem: object) -> None:
        """Keep the field besides the sentence."""
        self.field, self.path, self.problem = field, path, problem
        super().__init__(
            f"{field}={path!r}: {problem}, looked for as {os.path.abspath(path)}; give a PEM file"
        )


def tls_context(security: Security) -> ssl.SSLContext:
    """The context for connections to brokers.

    Raises:
        BadFile: a file is missing, holds no PEM, or key and certificate do not belong together.
    """
    field, path = "ca_file", security.ca_file
    try:
        context = ssl.create_default_context(cafile=path or None)
        context.check_hostname = security.check_hostname
        field, path = "certificate_file", security.certificate_file
        if path:
            context.load_cert_chain(
                path, security.key_file or None, password=security.key_password or None
            )
    except OSError as error:
        if field == "certificate_file" and security.key_file and os.path.exists(path):
            field, path = "key_file", security.key_file
        raise BadFile(field, path, error) from error
    return context
