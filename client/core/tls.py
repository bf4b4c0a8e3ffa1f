"""What a client's `Security` becomes: a TLS context from PEM files, a header of HTTP."""

import base64
import ipaddress
import os
from typing import TYPE_CHECKING

from client.core.options import Security
from client.errors import BadFile

if TYPE_CHECKING:
    import ssl


def tls_context(security: Security) -> "ssl.SSLContext | None":
    """The context for connections to brokers, None without TLS.

    Raises:
        BadFile: a file is missing, holds no PEM, or key and certificate do not belong together.
    """
    if not security.tls:
        return None
    # Slow to import, and most clients do not need it.
    import ssl

    field, path = "ca_file", security.ca_file
    try:
        context = ssl.create_default_context(cafile=path or None)
        if path:
            # From Python 3.13 on, an authority needs the extension keyUsage, which those that
            # openssl makes by default lack. Kafka's clients and older Pythons take them.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
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


def basic_authorization(security: Security, host: str, *, tls: bool) -> str | None:
    """The HTTP header Authorization of a user with a password, None without one.

    A password leaves this machine over TLS only. Source: RFC 7617.
    """
    if not security.password or not (tls or is_loopback(host)):
        return None
    pair = f"{security.username}:{security.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address is of this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
