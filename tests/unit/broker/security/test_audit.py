"""Equal events of the audit log are folded into one line."""

import pytest

from broker.requests.context import RequestContext
from broker.security.audit import FOLD_MS, Audit
from broker.security.principal import user
from broker.security.session import Session
from protocol.acl import Operation, ResourceType
from protocol.api_keys import ApiKey

SESSION = Session(peer_host="10.0.0.1", principal=user("bob"))


class Clock:
    now_ms = 5


def test_equal_failures_are_one_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    clock = Clock()
    audit = Audit(lambda: clock.now_ms)
    for _ in range(1000):
        audit.login_failed("10.0.0.1", "PLAIN", "SASL", "credentials")
        audit.refused(SESSION, "FETCH", Operation.READ, ResourceType.TOPIC, "a")
    audit.login_failed("10.0.0.2", "PLAIN", "SASL", "credentials", "bob")
    assert caplog.messages == [
        "10.0.0.1 failed to authenticate with PLAIN on listener SASL: credentials",
        "User:bob at 10.0.0.1 may not READ the topic 'a' (FETCH)",
        "10.0.0.2 failed to authenticate with PLAIN on listener SASL: credentials (user bob)",
    ]
    assert audit.refusals == 1000
    clock.now_ms += FOLD_MS
    audit.login_failed("10.0.0.1", "PLAIN", "SASL", "credentials")
    assert caplog.messages[3:] == [
        "10.0.0.1 failed to authenticate with PLAIN on listener SASL: credentials; "
        "999 more like it before"
    ]


def test_equal_refusals_of_certificates_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    audit = Audit(lambda: clock.now_ms)
    for text in ("no rule matches", "no rule matches", "another reason"):
        audit.refused_certificate("10.0.0.1", "METRICS", ValueError(text))
    clock.now_ms += FOLD_MS
    audit.refused_certificate("10.0.0.1", "METRICS", ValueError("no rule matches"))
    line = "10.0.0.1 failed to authenticate on listener METRICS: "
    assert caplog.messages == [
        line + "no rule matches",
        line + "another reason",
        line + "no rule matches; 1 more like it before",
    ]


FORGED = "bob\n10.0.0.9 authenticated as User:admin\x1b[2K\u202e é"


def test_a_name_cannot_end_a_line_or_hide_text_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    audit = Audit(lambda: 5)
    session = Session(peer_host="10.0.0.1", principal=user(f"CN={FORGED}"))
    audit.authenticated(session, "a certificate")
    request = RequestContext(ApiKey.DELETE_TOPICS, 6, 1, "c", "10.0.0.1", 1, session)
    audit.changed(request, f"deleted topic {FORGED}")
    audit.login_failed("10.0.0.1", "PLAIN", "SASL", "credentials", FORGED)
    audit.refused_certificate("10.0.0.1", "SSL", ValueError(FORGED))
    audit.refused(session, "FETCH", Operation.READ, ResourceType.TOPIC, FORGED)
    assert len(caplog.messages) == 5
    for line in caplog.messages:
        assert line.isprintable(), line
        escaped = r"bob\n10.0.0.9 authenticated as User:admin\x1b[2K\u202e é"
        assert escaped in line


def test_what_is_remembered_is_bounded() -> None:
    audit = Audit(lambda: 5)
    for number in range(3000):
        audit.login_failed(f"host-{number}", "PLAIN", "SASL", "credentials")
    assert len(audit._folded) <= 1000
