"""Who may ask the console: hosts, origins, users, sizes, and what read-only leaves out."""

import asyncio
import base64
from pathlib import Path

import pytest
from starlette.routing import Mount, Route

from client.core.options import Security
from console.options import ConsoleOptions
from console.web.app import build
from console.web.audit import REFUSALS_PER_MINUTE, RefusedRequests
from console.web.guard import BODY_BYTES
from console.web.users import TRIES, add_user, hash_password, is_password, read_users
from tests.integration.console.conftest import CHANGE, HOST, Browser, Open
from tidelog.testing import InProcessBroker

POLICY = "default-src 'self'; frame-ancestors 'none'; object-src 'none'; base-uri 'none'"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "evil:8090", ""])
@pytest.mark.parametrize("path", ["/", "/api/cluster", "/static/main.js", "/healthz"])
async def test_foreign_host_is_refused(browser: Browser, host: str, path: str) -> None:
    response = await browser.get(path, headers={"Host": host})
    assert response.status_code == 421


@pytest.mark.parametrize(
    "path", ["/", "/topics/t", "/static/main.js", "/api/time?text=now", "/none", "/api/none"]
)
async def test_every_answer_has_the_policy(browser: Browser, path: str) -> None:
    headers = (await browser.get(path)).headers
    assert headers["content-security-policy"].startswith(POLICY)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-request-id"]
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": f"http://{HOST}"}, 403),
        ({"X-Tidelog-Console": "1", "Origin": "http://evil.example"}, 403),
        ({"X-Tidelog-Console": "1", "Origin": "null"}, 403),
        ({"X-Tidelog-Console": "1", "Content-Type": "text/plain"}, 415),
        ({"X-Tidelog-Console": "1", "Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_form_from_elsewhere_changes_nothing(
    broker: InProcessBroker, browser: Browser, headers: dict[str, str], status: int
) -> None:
    await broker.create_topic("t")
    kinds = {"Content-Type": "application/json"} | headers
    body = b'{"value": "a"}'
    response = await browser.post("/api/topics/t/records", content=body, headers=kinds)
    assert response.status_code == status
    assert await broker.read("t") == []


async def test_a_body_is_bounded(broker: InProcessBroker, browser: Browser) -> None:
    await broker.create_topic("t")
    body = b'{"value": "%s"}' % (b"a" * BODY_BYTES)
    headers = CHANGE | {"Content-Type": "application/json"}
    response = await browser.post("/api/topics/t/records", content=body, headers=headers)
    assert response.status_code == 413
    deep = await browser.post("/api/topics/t/records", content=b"[" * 100_000, headers=headers)
    assert deep.status_code == 400


def writing_routes(options: ConsoleOptions) -> list[str]:
    routes = build(options).routes
    inner = [one for mount in routes if isinstance(mount, Mount) for one in mount.routes]
    return [
        route.path
        for route in [*routes, *inner]
        if isinstance(route, Route) and (route.methods or set()) - {"GET", "HEAD"}
    ]


async def test_read_only_has_no_writing_route(broker: InProcessBroker, open_console: Open) -> None:
    assert writing_routes(ConsoleOptions(bootstrap="127.0.0.1:1"))
    assert not writing_routes(ConsoleOptions(bootstrap="127.0.0.1:1", is_read_only=True))
    await broker.create_topic("t")
    async with open_console(is_read_only=True) as browser:
        for path in ("/topics/t/records", "/topics/t/settings", "/clock", "/groups/g/reset"):
            response = await browser.post(
                f"/api{path}", json={"value": "a", "changes": {}}, headers=CHANGE
            )
            assert response.status_code in (404, 405)
        assert await broker.read("t") == []
        assert 'data-read-only="1"' in (await browser.get("/")).text


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


async def test_a_login_is_asked_for_and_guesses_are_slowed(open_console: Open) -> None:
    async with open_console(users={"ann": hash_password("tide pool")}) as browser:
        refused = await browser.get("/")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic")
        assert (await browser.get("/", headers=basic("ann", "tide pool"))).status_code == 200
        wrong = [
            basic("ann", "x"),
            basic("bob", "tide pool"),
            basic("", ""),
            {"Authorization": "?"},
        ]
        for headers in wrong:
            assert (await browser.get("/", headers=headers)).status_code == 401
        for _ in range(TRIES):
            await browser.get("/", headers=basic("ann", "guess"))
        assert (await browser.get("/", headers=basic("ann", "other"))).status_code == 429
        # Who has logged in already is not locked out by another's guesses.
        assert (await browser.get("/", headers=basic("ann", "tide pool"))).status_code == 200


async def test_guesses_at_the_same_moment_are_slowed(open_console: Open) -> None:
    async with open_console(users={"ann": hash_password("tide pool")}) as browser:
        guesses = [basic("ann", f"guess {number}") for number in range(2 * TRIES)]
        answers = await asyncio.gather(*(browser.get("/", headers=one) for one in guesses))
        codes = sorted(answer.status_code for answer in answers)
        assert codes == [401] * TRIES + [429] * TRIES


@pytest.mark.parametrize(
    ("method", "headers", "user", "status", "why"),
    [
        ("GET", {"Host": "evil.example"}, "ann", 421, "does not answer to that host name"),
        ("GET", {"Authorization": ""}, "-", 401, "Log in"),
        ("GET", basic("eve\nforged", "guess"), r"eve\nforged", 401, "no user of this console"),
        ("POST", {}, "ann", 403, "needs the header"),
        ("POST", CHANGE | {"Origin": "http://evil.example"}, "ann", 403, "must come from a page"),
        ("POST", CHANGE | {"Content-Type": "text/plain"}, "ann", 415, "is JSON"),
    ],
)
async def test_a_refused_request_is_in_the_audit_log(
    open_console: Open,
    caplog: pytest.LogCaptureFixture,
    method: str,
    headers: dict[str, str],
    user: str,
    status: int,
    why: str,
) -> None:
    """Who, from where, what, why, and the id that the answer has; never the password."""
    login = basic("ann", "tide pool")
    async with open_console(users={"ann": hash_password("tide pool")}) as browser:
        path = "/api/topics/t/records"
        with caplog.at_level("INFO", "tidelog.audit"):
            response = await browser.request(method, path, headers=login | headers)
    assert response.status_code == status
    (record,) = [one for one in caplog.records if one.name == "tidelog.audit"]
    line = record.getMessage()
    assert f"refused={status} target='{method} {path}'" in line
    assert why in line
    assert "address=127.0.0.1 " in line
    assert f"request={response.headers['x-request-id']} " in line
    assert f"user='{user}'" in line
    assert "\n" not in line
    assert "guess" not in line
    assert "tide pool" not in line


async def test_a_body_that_is_too_large_is_in_the_audit_log(
    browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    headers = CHANGE | {"Content-Type": "application/json"}
    body = b'{"value": "%s"}' % (b"a" * BODY_BYTES)
    with caplog.at_level("INFO", "tidelog.audit"):
        await browser.post("/api/topics/t/records", content=body, headers=headers)
    assert "refused=413 target='POST /api/topics/t/records'" in caplog.text


def test_refusals_without_end_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    refused = RefusedRequests(lambda: now)
    scope = {"method": "GET", "path": "/", "state": {"request_id": "1", "user": ""}}
    with caplog.at_level("INFO", "tidelog.audit"):
        for _ in range(REFUSALS_PER_MINUTE + 7):
            refused.write(scope, "", 421, "No.")
        assert len(caplog.records) == REFUSALS_PER_MINUTE
        now += 61
        refused.write(scope, "", 421, "No.")
    assert "refused 7 more requests" in caplog.text
    assert len(caplog.records) == REFUSALS_PER_MINUTE + 2


def test_users_are_kept_as_hashes(tmp_path: Path) -> None:
    path = tmp_path / "users"
    add_user(path, "ann", "secret-1")
    add_user(path, "bob", "secret-2")
    add_user(path, "ann", "secret-3")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "secret" not in path.read_text()
    users = read_users(path)
    assert is_password(users["ann"], "secret-3")
    assert not is_password(users["ann"], "secret-1")
    with pytest.raises(ValueError, match="no name"):
        add_user(path, "a:b", "x")
    path.write_text("ann:plain\n")
    with pytest.raises(ValueError, match=":1 is no user"):
        read_users(path)


async def test_no_secret_in_any_response(broker: InProcessBroker, open_console: Open) -> None:
    security = Security(mechanism="PLAIN", username="ann", password="hunter2-of-the-broker")
    users = {"ann": hash_password("hunter2-of-the-console")}
    login = basic("ann", "hunter2-of-the-console")
    await broker.create_topic("t")
    async with open_console(security=security, users=users) as browser:
        for path in ("/", "/none", "/api/none", "/api/cluster"):
            text = (await browser.get(path, headers=login)).text
            assert "hunter2" not in text
            assert "scrypt" not in text
    assert "hunter2" not in repr(ConsoleOptions(bootstrap="b", security=security, users=users))


@pytest.mark.parametrize(
    "security", [None, Security(mechanism="PLAIN", username="a", password="b")]
)
async def test_a_page_knows_whether_rules_may_hide_something(
    open_console: Open, security: Security | None
) -> None:
    async with open_console(**({"security": security} if security else {})) as browser:
        assert f'data-secured="{1 if security else 0}"' in (await browser.get("/topics")).text


async def test_a_defect_is_named_without_its_traceback(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr("console.data.overview.describe_cluster", broken)
    response = await browser.get("/api/cluster")
    assert response.status_code == 500
    assert "RuntimeError" in response.json()["error"]
    assert "inside" not in response.text
    assert response.headers["content-security-policy"].startswith(POLICY)


async def test_a_defect_of_the_guard_has_the_headers_too(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr("console.web.guard.Headers", broken)
    response = await browser.get("/")
    assert response.status_code == 500
    assert response.headers["content-security-policy"].startswith(POLICY)
    assert response.headers["x-request-id"] == response.json()["request_id"]
    assert response.headers["cache-control"] == "no-cache"
