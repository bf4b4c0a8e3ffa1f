"""Authorities are taken as Kafka's clients take them, whatever Python checks by default."""

import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from client.core.options import Security
from client.core.tls import tls_context
from tests.support.certificates import authority, signed


@pytest.fixture
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python checks as from 3.13 on."""
    made = ssl.create_default_context

    def strict(**arguments: Any) -> ssl.SSLContext:
        context = made(**arguments)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


def shake_hands(client: ssl.SSLContext, pem: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (near, far, near):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()


@pytest.mark.usefixtures("_strict")
def test_an_authority_without_a_key_usage_is_taken_from_a_file(tmp_path: Path) -> None:
    """As `openssl req -x509` makes it by default."""
    signer = authority(tmp_path, extensions=["basicConstraints=critical,CA:TRUE"])
    context = tls_context(Security(tls=True, ca_file=str(signer)))
    assert context is not None
    shake_hands(context, signed(tmp_path, signer, "server"))
    with pytest.raises(ssl.SSLCertVerificationError, match="key usage"):
        shake_hands(ssl.create_default_context(cafile=signer), tmp_path / "server.pem")


@pytest.mark.usefixtures("_strict")
def test_the_systems_authorities_are_checked_as_python_does() -> None:
    context = tls_context(Security(tls=True))
    assert context is not None
    assert context.verify_flags & ssl.VERIFY_X509_STRICT
