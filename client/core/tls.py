"""The TLS context of a client, from PEM files.

Imported by the connections only when TLS is on: `ssl` is slow to import.
"""

import os
import ssl

from client.core.options import BadFile, Security


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
