"""Equal events of the audit log are folded into one line."""

import pytest

from broker.principal import user
from broker.quotas.throttle import Excess
from broker.requests.context import RequestContext
from broker.security.audit import FOLD_MS, KINDS_MAX, QUOTA_MS, Audit
from broker.security.session import Session
from protocol.acl import Operation, ResourceType
from protocol.api_keys import ApiKey
from tests.support.clock import FrozenClock

SESSION = Session(peer_host="10.0.0.1", principal=user("bob"))


def test_equal_failures_are_one_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    clock = FrozenClock()
    audit = Audit(clock)
    for _ in range(1000):
        audit.login_failed("10.0.0.1", "PLAIN", "SASL", "credentials")
        audit.decided(SESSION, "FETCH", Operation.READ, ResourceType.TOPIC, "a", is_allowed=False)
    audit.login_failed("10.0.0.2", "PLAIN", "SASL", "credentials", "bob")
    failed = "10.0.0.1 failed to authenticate with PLAIN on listener SASL: credentials"
    refused = "User:bob at 10.0.0.1 may not READ the topic 'a' (FETCH)"
    assert caplog.messages == [
        failed,
        refused,
        "10.0.0.2 failed to authenticate with PLAIN on listener SASL: credentials (user bob)",
    ]
    assert audit.refusals == 1000
    clock.advance(FOLD_MS)
    more = "; 998 more like it before"
    assert caplog.messages[3:] == [failed + more, refused + more], "nothing has to follow"
    clock.advance(10 * FOLD_MS)
    assert len(caplog.messages) == 5
    audit.login_failed("10.0.0.1", "PLAIN", "SASL", "credentials")
    assert caplog.messages[5:] == [failed], "a new series begins"


def test_a_series_that_continues_is_one_line_in_each_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = FrozenClock()
    audit = Audit(clock)
    for _ in range(300):
        audit.login_failed("10.0.0.1", "PLAIN", "SASL", "credentials")
        clock.advance(FOLD_MS // 100)
    assert len(caplog.messages) == 4
    assert [line.partition("; ")[2] for line in caplog.messages] == [
        "",
        *["98 more like it before"],
        *["99 more like it before"] * 2,
    ]


def test_the_rest_is_written_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(FrozenClock())
    for _ in range(3):
        audit.login_failed("10.0.0.1", "PLAIN", "SASL", "credentials")
    audit.close()
    assert len(caplog.messages) == 2
    assert caplog.messages[1].endswith("; 1 more like it before")


def test_equal_refusals_of_certificates_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = FrozenClock()
    audit = Audit(clock)
    for text in ("no rule matches", "no rule matches", "another reason"):
        audit.refused_certificate("10.0.0.1", "METRICS", ValueError(text))
    clock.advance(FOLD_MS)
    line = "10.0.0.1 failed to authenticate on listener METRICS: "
    assert caplog.messages == [
        line + "no rule matches",
        line + "another reason",
        line + "no rule matches",
    ]


def test_ten_thousand_addresses_write_no_ten_thousand_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FrozenClock()
    audit = Audit(clock)
    for number in range(10_000):
        audit.login_failed(f"host-{number}", "PLAIN", "SASL", "credentials")
    audit.decided(SESSION, "FETCH", Operation.READ, ResourceType.TOPIC, "a", is_allowed=False)
    assert len(caplog.messages) <= KINDS_MAX + 1
    assert len(audit._folds) <= KINDS_MAX + 2
    clock.advance(FOLD_MS)
    counted = sum(
        int(line.partition("; ")[2].split()[0]) for line in caplog.messages if ";" in line
    )
    lines = sum("failed to authenticate" in line for line in caplog.messages)
    assert counted + lines == 10_000, "each is counted once"
    clock.advance(FOLD_MS)
    assert not audit._folds


def test_strangers_write_a_line_each_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    clock = FrozenClock()
    audit = Audit(clock)
    for number in range(10_000):
        audit.handshake_failed(f"10.0.{number >> 8}.{number & 255}", "SSL", "WRONG_VERSION_NUMBER")
        audit.connection_refused(f"10.0.0.{number & 255}", "SSL", "max.connections = 5 are open")
        clock.advance(1)
    assert len(caplog.messages) == 2 * 11
    assert caplog.messages[0] == (
        "TLS handshake with 10.0.0.0 on listener SSL failed: WRONG_VERSION_NUMBER"
    )
    assert caplog.messages[1] == (
        "refused a connection of 10.0.0.0 on listener SSL: max.connections = 5 are open"
    )
    assert caplog.messages[2].endswith("; 998 more like it before")


def test_a_client_over_its_quota_is_a_line_each_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    clock = FrozenClock()
    audit = Audit(clock)
    of_bob = Excess((("user", "bob"),), "producer_byte_rate", 1000.0, 2500.0)
    for _ in range(500):
        audit.throttled(of_bob, 1500)
        audit.throttled(of_bob._replace(entity=(("client-id", "c\n"),)), 10)
    assert caplog.messages == [
        "user 'bob' is over producer_byte_rate = 1000 with 2500 and waits 1500 ms",
        "client-id 'c\\n' is over producer_byte_rate = 1000 with 2500 and waits 10 ms",
    ]
    clock.advance(QUOTA_MS)
    assert len(caplog.messages) == 4


FORGED = "bob\n10.0.0.9 authenticated as User:admin\x1b[2K\u202e é"


def test_refused_records_are_a_line_for_each_topic_and_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    clock = FrozenClock()
    audit = Audit(clock)
    request = RequestContext(ApiKey.PRODUCE, 9, 1, "pilot", "10.0.0.1", 1, SESSION)
    for partition in range(3):
        audit.append_refused(request, "t", partition, "INVALID_TIMESTAMP", "too new")
    audit.append_refused(request, "u", 0, "INVALID_TIMESTAMP", "x" * 10_000)
    first = "User:bob at 10.0.0.1 ('pilot'): records for partition {} of 't' refused with "
    first += "INVALID_TIMESTAMP: too new"
    assert caplog.messages[0] == first.format(0)
    assert len(caplog.messages) == 2
    assert len(caplog.messages[1]) < 700
    clock.advance(FOLD_MS)
    assert caplog.messages[2] == first.format(2) + "; 1 more like it before"


def test_a_name_cannot_end_a_line_or_hide_text_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    audit = Audit(FrozenClock())
    session = Session(peer_host="10.0.0.1", principal=user(f"CN={FORGED}"))
    audit.authenticated(session, "a certificate")
    request = RequestContext(ApiKey.DELETE_TOPICS, 6, 1, "c", "10.0.0.1", 1, session)
    audit.changed(request, f"deleted topic {FORGED}")
    audit.login_failed("10.0.0.1", "PLAIN", "SASL", "credentials", FORGED)
    audit.refused_certificate("10.0.0.1", "SSL", ValueError(FORGED))
    audit.decided(session, "FETCH", Operation.READ, ResourceType.TOPIC, FORGED, is_allowed=False)
    assert len(caplog.messages) == 5
    for line in caplog.messages:
        assert line.isprintable(), line
        escaped = r"bob\n10.0.0.9 authenticated as User:admin\x1b[2K\u202e é"
        assert escaped in line


def test_rights_that_are_there_are_distinguished_by_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "tidelog.audit")
    audit = Audit(FrozenClock())
    assert audit.notes_allowed()
    for name in ("a", "b", "a"):
        audit.decided(SESSION, "FETCH", Operation.READ, ResourceType.TOPIC, name, is_allowed=True)
    assert caplog.messages == [
        f"User:bob at 10.0.0.1 may READ the topic '{name}' (FETCH)" for name in "ab"
    ]
    assert audit.refusals == 0
    caplog.set_level("INFO", "tidelog.audit")
    assert not audit.notes_allowed()


def test_a_login_names_its_client_without_what_would_end_the_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    session = Session(peer_host="10.0.0.1", listener="SASL", principal=user("bob"))
    session.client_id = "x\nevil" + "y" * 300
    Audit(FrozenClock()).authenticated(session, "PLAIN")
    (line,) = caplog.messages
    assert line.startswith("10.0.0.1 authenticated as User:bob with PLAIN on listener SASL")
    assert "\n" not in line
    assert line.endswith("y" * 250 + "')")
