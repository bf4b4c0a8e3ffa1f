"""Users, access rules and quotas changed by the console."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from client.admin import Admin
from client.core.options import Security
from tests.integration.console.conftest import Browser, Open
from tidelog.testing import InProcessBroker, in_process_broker

RULE = {
    "principal": "User:ann",
    "permission": "allow",
    "operation": "read",
    "resource": "topic",
    "name": "flights",
    "pattern": "prefixed",
    "host": "*",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    """Has an authorizer, under which the console's user may do everything."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    async with in_process_broker(tmp_path / "data", settings=settings) as running:
        yield running


async def test_a_user_comes_changes_and_goes(
    browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    user = {"name": "ann", "password": "tide-pool"}
    await browser.change("/security/users", **user)
    await browser.change("/security/users", **user, mechanism="SCRAM-SHA-256")
    (found,) = (await browser.ask("/security"))["users"]["found"]
    assert found["name"] == "ann"
    assert len(found["mechanisms"]) == 2
    await browser.change("/security/users/remove", name="ann")
    assert (await browser.ask("/security"))["users"]["found"] == []
    assert "change=user-add target='user ann SCRAM-SHA-256'" in caplog.text
    assert "tide-pool" not in caplog.text


async def test_adding_a_user_again_changes_no_password(
    browser: Browser, broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """And a change of the password is one for every mechanism that the user has."""
    caplog.set_level("INFO", "tidelog.audit")
    async with Admin(broker.bootstrap) as admin:
        await admin.set_user("ann", "tide-pool", iterations=5000)
        await admin.set_user("ann", "tide-pool", mechanism="SCRAM-SHA-256", iterations=6000)
        before = await admin.users()
        for chosen in ({}, {"mechanism": "SCRAM-SHA-256"}):
            body = {"name": "ann", "password": "other", **chosen}
            refused = await browser.change("/security/users", 400, **body)
            assert "ann has a password for SCRAM-SHA-" in refused["error"]
        assert await admin.users() == before
        done = await browser.change("/security/users/password", name="ann", password="other")
        assert sorted(done["mechanisms"]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert {count for _, count in (await admin.users())["ann"]}.isdisjoint({5000, 6000})
    assert "change=user-password target='user ann SCRAM-SHA" in caplog.text


async def test_a_rule_comes_and_goes_alone(browser: Browser) -> None:
    await browser.change("/security/rules", **RULE)
    await browser.change("/security/rules", **RULE | {"operation": "write"})
    rules = (await browser.ask("/security"))["rules"]["found"]
    assert RULE in rules
    assert len(rules) == 2
    await browser.change("/security/rules/remove", **RULE)
    (left,) = (await browser.ask("/security"))["rules"]["found"]
    assert left["operation"] == "write"
    again = await browser.change("/security/rules/remove", 400, **RULE)
    assert "no rule any more" in again["error"]


async def test_a_quota_comes_and_goes(browser: Browser) -> None:
    entity = {"user": "ann", "client-id": None}
    limits = {"producer_byte_rate": 1000}
    await browser.change("/security/quotas", entity=entity, limits=limits)
    (found,) = (await browser.ask("/security"))["quotas"]["found"]
    assert found == {"entity": entity, "limits": {"producer_byte_rate": 1000.0}}
    await browser.change("/security/quotas", entity=entity, limits={"producer_byte_rate": None})
    assert (await browser.ask("/security"))["quotas"]["found"] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("users/remove", {"name": "me"}),
        ("users/password", {"name": "me", "password": "y"}),
        ("rules/remove", RULE | {"principal": "User:me"}),
        ("rules/remove", RULE | {"principal": "User:*"}),
        ("rules", RULE | {"principal": "User:me", "permission": "deny"}),
    ],
)
async def test_what_takes_its_own_rights_has_to_be_confirmed(
    open_console: Open, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    async with open_console() as browser:
        await browser.change("/security/users", name="me", password="x")
        await browser.change("/security/rules", **RULE | body | {"name": "flights"})
        app = browser._transport.app  # type: ignore[attr-defined]
        own = Security(mechanism="SCRAM-SHA-512", username="me", password="x")
        options = app.state.hub.options
        monkeypatch.setattr(
            app.state.hub, "options", type(options)(bootstrap=options.bootstrap, security=own)
        )
        refused = await browser.change(f"/security/{path}", 400, **body)
        assert refused["error"].endswith("Confirm to do it")
        await browser.change(f"/security/{path}", **body, confirm=True)


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("users", {"name": "ann"}, "lacks password"),
        ("users", {"name": "", "password": "x"}, "name is a text"),
        ("users", {"name": "a", "password": "x", "mechanism": "MD5"}, "SCRAM-SHA-256"),
        ("rules", RULE | {"operation": "any"}, "operation=any does not exist"),
        ("rules", RULE | {"resource": "planet"}, "resource=planet does not exist"),
        ("rules", RULE | {"pattern": "match"}, "choose literal, prefixed"),
        ("rules", RULE | {"host": 1}, "host is a text"),
        ("quotas", {"entity": {"dog": "a"}, "limits": {"x": 1}}, "user, client-id, ip"),
        ("quotas", {"entity": {"user": 1}, "limits": {"x": 1}}, "text, or null"),
        ("quotas", {"entity": {"user": "a"}, "limits": {}}, "limits has numbers"),
        ("quotas", {"entity": {"user": "a"}, "limits": {"x": "1"}}, "x=1 is no number"),
    ],
)
async def test_a_wrong_change_is_refused_with_its_field(
    browser: Browser, path: str, body: dict[str, Any], word: str
) -> None:
    refused = await browser.change(f"/security/{path}", 400, **body)
    assert word in refused["error"]
