"""The watch over certificates: what is read again, and what an operator is warned of."""

import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.jobs.certificates import CertificateWatch
from broker.security.audit import AUDIT_LOGGER, Audit
from broker.security.secret_files import reveal
from broker.security.tls.contexts import TlsContexts
from broker.security.tls.listeners import TlsListeners
from broker.threads import Pool
from config import load
from config.security.keys import listener_security
from tests.support.certificates import authority, signed
from tests.support.clock import DAY_MS, FrozenClock


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    signer = authority(directory)
    # The clock of these tests begins with the first second of "one", when "two" has to be valid.
    signed(directory, signer, "two")
    signed(directory, signer, "one")
    return directory


@pytest.fixture
def live(place: Path, tmp_path: Path) -> Path:
    path = tmp_path / "live.pem"
    path.write_bytes((place / "one.pem").read_bytes())
    return path


@pytest.fixture
def contexts(live: Path) -> TlsContexts:
    config = load(
        command_line={"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(live)}
    )
    settings = listener_security(config, config.listeners[0]).tls
    assert settings is not None
    return TlsContexts(settings, reveal, now_ms=int(time.time() * 1000))


@pytest.fixture
def clock(contexts: TlsContexts) -> FrozenClock:
    return FrozenClock(wall_ms=contexts.certificate.not_before_ms)


@pytest.fixture
async def watch(contexts: TlsContexts, clock: FrozenClock) -> AsyncIterator[CertificateWatch]:
    pool = Pool("jobs", 1)
    listeners = TlsListeners({"SSL": contexts}, clock.wall_ms, pool, Audit(clock))
    yield CertificateWatch(listeners, clock.wall_ms)
    pool.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    found = [
        (record.levelno, record.getMessage())
        for record in caplog.records
        if record.name != AUDIT_LOGGER
    ]
    caplog.clear()
    return found


async def test_a_changed_file_is_read_once(
    watch: CertificateWatch,
    contexts: TlsContexts,
    live: Path,
    place: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    before = contexts.current
    await watch.run()
    assert contexts.current is before
    live.write_bytes((place / "two.pem").read_bytes())
    await watch.run()
    await watch.run()
    assert contexts.certificate.subject == "CN=two"
    assert [level for level, _ in lines(caplog)] == [logging.INFO]


async def test_a_broken_file_is_reported_once_and_changes_nothing(
    watch: CertificateWatch, contexts: TlsContexts, live: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = contexts.current
    live.write_text("no PEM")
    await watch.run()
    await watch.run()
    ((level, text),) = lines(caplog)
    assert (level, contexts.current) == (logging.ERROR, before)
    assert "listener SSL keeps its certificate, which is valid for 30 more days" in text
    assert "correct the files" in text
    await watch.reload_all()
    assert len(lines(caplog)) == 1, "a signal tries again"


async def test_warnings_before_the_end(
    watch: CertificateWatch, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """This one is valid for 30 days, so nothing is said in the first two thirds."""
    said = {}
    for day in range(32):
        await watch.run()
        await watch.run()
        for level, text in lines(caplog):
            said[day] = (level, text.partition(" of CN=one ")[2].partition(";")[0])
        clock.advance(DAY_MS)
    assert said == {
        20: (logging.WARNING, "expires in 240 hours"),
        23: (logging.WARNING, "expires in 168 hours"),
        29: (logging.WARNING, "expires in 24 hours"),
        30: (logging.ERROR, "has expired, clients refuse it"),
    }


async def test_a_new_certificate_ends_the_warnings(
    watch: CertificateWatch,
    clock: FrozenClock,
    live: Path,
    place: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock.advance(25 * DAY_MS)
    await watch.run()
    assert len(lines(caplog)) == 1
    live.write_bytes((place / "two.pem").read_bytes())
    await watch.run()
    ((_, text),) = lines(caplog)
    assert "CN=two expires" in text, "it expires as soon"


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o600, False), (0o640, False), (0o644, True), (0o660, True)]
)
async def test_a_key_that_others_read_is_warned_of(
    contexts: TlsContexts, live: Path, caplog: pytest.LogCaptureFixture, mode: int, is_open: bool
) -> None:
    live.chmod(mode)
    clock = FrozenClock()
    TlsListeners({"SSL": contexts}, clock.wall_ms, Pool("jobs", 1), Audit(clock))
    said = [text for _, text in lines(caplog)]
    expected = (
        f"listener SSL: others may read or write {live} (mode {mode:04o}), which has a secret; "
        "chmod 600 or 640 it"
    )
    assert said == ([expected] if is_open else [])
