"""Revocation lists of clients' certificates on a live listener, and attacks on them."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from protocol.api.metadata import MetadataRequest
from tests.integration.security.test_dynamic_certificates import alter
from tests.support.broker import RawClient, RunningBroker, running_broker
from tests.support.certificates import authority, openssl, revocations, signed

LOCATION = "listener.name.ssl.ssl.keystore.location"
ANSWER_S = 10
REFUSALS = (ssl.SSLError, ConnectionError)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    signer = authority(directory)
    for name in ("server", "lost", "kept"):
        signed(directory, signer, name)
    revocations(directory, directory / "none")
    revocations(directory, directory / "one", "lost")
    return directory


@pytest.fixture
def live(place: Path, tmp_path: Path) -> Path:
    """The file of the broker's lists, in which nobody is at first."""
    return Path(copyfile(place / "none" / "crl.pem", tmp_path / "live.pem"))


@pytest.fixture
async def running(place: Path, live: Path, tmp_path: Path) -> AsyncIterator[RunningBroker]:
    settings: dict[str, Any] = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl_keystore_location": str(place / "server.pem"),
        "ssl_truststore_location": str(place / "ca.pem"),
        "ssl_client_auth": "required",
        "ssl_crl_location": str(live),
    }
    async with running_broker(tmp_path / "data", **settings) as running:
        yield running


def of(place: Path, name: str, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(place / "ca.pem"))
    context.load_cert_chain(place / f"{name}.pem")
    if version is not None:
        context.maximum_version = version
    return context


async def works(client: RawClient) -> bool:
    return bool((await client.request(MetadataRequest(topics=[]), 12)).brokers)


def resumed(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[bool, ssl.SSLSession | None]:
    """Whether a session was resumed, and the one that the broker gave; raises if it refuses."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as secured,
    ):
        secured.sendall(bytes.fromhex("0000000e 0012 0000 00000007 0004 74657374"))
        if not secured.recv(4):  # the ticket of TLS 1.3 comes with the first answer
            raise ConnectionError("closed")
        return bool(secured.session_reused), secured.session


async def is_served(running: RunningBroker, context: ssl.SSLContext) -> bool:
    """Whether a new connection gets an answer; TLS 1.3 refuses after the client's handshake."""
    try:
        await asyncio.to_thread(resumed, running.port, context)
    except REFUSALS:
        return False
    return True


async def test_who_is_revoked_while_connected(
    running: RunningBroker, place: Path, live: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is open stays, as with a replaced certificate; nothing new is let in."""
    lost, kept = of(place, "lost"), of(place, "kept")
    open_one, open_other = await running.client(lost), await running.client(kept)
    assert await works(open_one)
    copyfile(place / "one" / "crl.pem", live)
    with caplog.at_level(logging.INFO):
        await running.broker.certificates.run()
        assert not await is_served(running, lost)
    assert "revoked" in caplog.text
    assert await works(open_one)
    assert await works(open_other)
    assert await is_served(running, kept)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_of_before_opens_nothing(
    running: RunningBroker, place: Path, live: Path, version: ssl.TLSVersion
) -> None:
    """A resumed session shows no certificate, so that a list would not be asked about it."""
    lost = of(place, "lost", version)
    _, session = await asyncio.to_thread(resumed, running.port, lost)
    assert session is not None
    reused, _ = await asyncio.to_thread(resumed, running.port, lost, session)
    assert reused
    copyfile(place / "one" / "crl.pem", live)
    await running.broker.certificates.run()
    with pytest.raises(REFUSALS):
        await asyncio.to_thread(resumed, running.port, lost, session)
    kept = of(place, "kept", version)
    assert await asyncio.to_thread(resumed, running.port, kept)


def bad_lists(place: Path, folder: Path) -> dict[str, bytes | None]:
    """Contents of the file that must not come into force; None is no file."""
    good = (place / "one" / "crl.pem").read_bytes()
    ended = ("20200101000000Z", "20200102000000Z")
    later = ("20400101000000Z", "20410101000000Z")
    return {
        "missing": None,
        "empty": b"",
        "cut": good[: len(good) // 2],
        "damaged": good.replace(b"\nMI", b"\nMA", 1),
        "in DER": openssl("crl", "-in", str(place / "one" / "crl.pem"), "-outform", "DER"),
        "a certificate": (place / "ca.pem").read_bytes(),
        "ended": revocations(place, folder / "ended", "lost", dates=ended).read_bytes(),
        "not begun": revocations(place, folder / "later", "lost", dates=later).read_bytes(),
    }


async def test_a_list_that_cannot_be_used_leaves_the_former_one(
    running: RunningBroker,
    place: Path,
    live: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lost, kept = of(place, "lost"), of(place, "kept")
    copyfile(place / "one" / "crl.pem", live)
    await running.broker.certificates.run()
    for name, content in bad_lists(place, tmp_path).items():
        live.unlink(missing_ok=True)
        if content is not None:
            live.write_bytes(content)
        caplog.clear()
        await running.broker.certificates.run()
        await running.broker.certificates.reload_all()
        assert "ssl.crl.location" in caplog.text, name
        asked = RunningBroker(running.broker, running.ready)
        asked.port = running.ready.ports["PLAINTEXT"]
        code, text = await alter(asked, {LOCATION: str(place / "server.pem")})
        assert code != 0, name
        assert "ssl.crl.location" in text, name
        assert not await is_served(running, lost), name
        assert await is_served(running, kept), name


@pytest.mark.parametrize("name", ["ca", "another"])
async def test_a_list_of_another_authority_lets_nobody_in(
    running: RunningBroker, place: Path, live: Path, tmp_path: Path, name: str
) -> None:
    """Also of one with the same name: the signature of a list counts."""
    other = tmp_path / "other"
    other.mkdir()
    authority(other, name).rename(other / "ca.pem")
    if name != "ca":
        (other / f"{name}.key").rename(other / "ca.key")
    live.write_bytes(revocations(other, tmp_path / "lists").read_bytes())
    await running.broker.certificates.run()
    for device in ("lost", "kept"):
        assert not await is_served(running, of(place, device)), device
    copyfile(place / "one" / "crl.pem", live)
    await running.broker.certificates.run()
    assert await is_served(running, of(place, "kept"))
