"""The metrics port is no way round the rules: who may ask, and what the answer shows."""

import asyncio
import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from broker.security.failed_logins import FREE
from client.admin import Admin
from client.core.options import Security
from client.errors import InvalidUse
from client.types import TopicPartition
from config import ConfigErrors, load
from protocol.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from storage.log.log import Log
from tests.integration.security.test_sasl import add_users
from tests.support.broker import RunningBroker, running_broker
from tests.support.certificates import authority, signed
from tests.support.explain import explain_lookup
from tests.support.requests import create_topic

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
EXPLAIN = "/explain?topic={}&partition=0&at=0"
SEGMENTS = "/segments?topic={}"
RETENTION = "/retention?topic={}"
SKEW = "/skew?topic={}"
HISTOGRAM = "/histogram?topic={}"
PATHS = ["/metrics", EXPLAIN.format("secret"), SEGMENTS.format("secret"), "/healthz"]
ON_LOOPBACK = {"metrics_listener": "127.0.0.1:0"}
WITH_RULES = {"authorizer_class_name": STANDARD, "super_users": "User:ANONYMOUS;User:admin"}


class Client:
    """A client of the metrics port."""

    def __init__(
        self,
        running: RunningBroker,
        authorization: str | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        host: str | None = None,
    ) -> None:
        self._url = f"http{'s' if tls else ''}://127.0.0.1:{running.ready.metrics_port}"
        self._tls = tls
        self._headers = {} if authorization is None else {"Authorization": authorization}
        if host is not None:
            self._headers["Host"] = host

    async def get(self, path: str) -> tuple[int, bytes, Any]:
        def ask() -> tuple[int, bytes, Any]:
            request = urllib.request.Request(self._url + path, headers=self._headers)
            try:
                with urllib.request.urlopen(request, timeout=10, context=self._tls) as answer:
                    return answer.status, answer.read(), answer.headers
            except urllib.error.HTTPError as error:
                return error.code, error.read(), error.headers

        return await asyncio.to_thread(ask)

    async def all(self) -> list[tuple[int, bytes]]:
        return [(await self.get(path))[:2] for path in PATHS]

    async def statuses(self) -> list[int]:
        return [status for status, _ in await self.all()]


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def allow(running: RunningBroker, name: str, *rights: tuple[ResourceType, str, Operation]) -> None:
    running.broker.security.add_acls(rules(name, rights))


def rules(name: str, rights: Iterable[tuple[ResourceType, str, Operation]]) -> list[Acl]:
    return [
        Acl(kind, resource, PatternType.LITERAL, f"User:{name}", "*", operation, Permission.ALLOW)
        for kind, resource, operation in rights
    ]


class TestWithoutAuthentication:
    @pytest.mark.parametrize(
        ("host", "settings", "shows"),
        [
            ("127.0.0.1", {}, True),
            ("127.0.0.1", WITH_RULES, True),
            ("0.0.0.0", {}, False),
            ("0.0.0.0", WITH_RULES, False),
            ("0.0.0.0", {"insecure_allow": "true"}, True),
            ("0.0.0.0", WITH_RULES | {"insecure_allow": "true"}, False),
        ],
    )
    async def test_names_are_shown_on_loopback_and_on_trusted_networks(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        host: str,
        settings: dict[str, str],
        shows: bool,
    ) -> None:
        more: dict[str, Any] = settings | {"metrics_listener": f"{host}:0"}
        async with running_broker(tmp_path / "data", **more) as running:
            await create_topic(await running.client(), "secret")
            found = await Client(running).all()
            rest = [200, 200] if shows else [403, 403]
            assert [status for status, _ in found] == [200, *rest, 200]
            assert (b'topic="secret"' in found[0][1]) is shows
            assert any(b"high_watermark" in body or b"secret" in body for _, body in found) is shows
            assert b"tidelog_batches_appended" in found[0][1]
            if not shows:
                assert b"set metrics.auth to basic or bearer" in found[1][1]

            monkeypatch.setattr(Log, "offline_reason", property(lambda log: "broken"))
            status, body, _ = await Client(running).get("/healthz")
            assert (status, b" is offline: broken" in body) == (503, shows)
            monkeypatch.undo()

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("localhost", 200), ("localhost:1234", 200), ("127.0.0.9", 200), ("[::1]:80", 200),
            ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("10.0.0.1", 403),
            ("[::1", 403), ("", 403),
        ],
    )  # fmt: skip
    async def test_a_page_under_a_foreign_name_reads_nothing(
        self, tmp_path: Path, host: str, status: int
    ) -> None:
        settings: dict[str, Any] = ON_LOOPBACK
        async with running_broker(tmp_path / "data", **settings) as running:
            for path in ("/metrics", "/readyz"):
                found, body, _ = await Client(running, host=host).get(path)
                assert found == status, body
                assert (b"write 127.0.0.1" in body) is (status == 403)


QUESTIONS = ("explain", "segments", "retention", "skew", "histogram")


class TestBasic:
    SETTINGS = ON_LOOPBACK | {
        "metrics_auth": "basic",
        "super_users": "User:admin",
        "connection_failed_authentication_delay_ms": "0",
    }

    async def test_only_users_are_answered_but_probes_are_for_all(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = self.SETTINGS
        async with running_broker(tmp_path / "data", **settings) as running:
            add_users(running)
            await create_topic(await running.client(), "secret")
            assert await Client(running, basic("alice", "secret")).statuses() == [200] * 4
            for wrong in (
                None, "", "Basic", "Basic !", "Bearer x",
                "Basic " + base64.b64encode(b"alice").decode(),
                basic("alice", "wrong"), basic("alice", ""), basic("nobody", "secret"),
                basic("", "secret"), basic("a\0b", "secret"),
            ):  # fmt: skip
                client = Client(running, wrong)
                assert await client.statuses() == [401, 401, 401, 200], wrong
                _, body, headers = await client.get("/explain?topic=secret&at=0")
                assert headers["WWW-Authenticate"] == 'Basic realm="tidelog"'
                assert headers["X-Content-Type-Options"] == "nosniff"
                assert body == b"prove who you are; see metrics.auth\n"
            counted = running.broker.metrics.authentications
            assert counted["METRICS", "BASIC", "ok"] == 3
            assert counted["METRICS", "BASIC", "failed"] > 20
            assert len(running.broker.connections) == 1

    async def test_the_cure_for_a_window_names_its_topic_whose_rules_count(
        self, tmp_path: Path
    ) -> None:
        settings: dict[str, Any] = self.SETTINGS | WITH_RULES | {"time_windows_enable": "true"}
        async with running_broker(tmp_path / "data", **settings) as running:
            add_users(running)
            await create_topic(await running.client(), "secret")
            client = Client(running, basic("alice", "secret"))
            for topic in ("secret", "missing"):
                window = f"{topic}.__t__20261101T100000Z__"
                status, body, _ = await client.get(SEGMENTS.format(window))
                assert status == 403
                assert f'--op describe --topic {topic}"'.encode() in body

    async def test_rights_decide_and_hide_whether_a_topic_exists(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "tidelog.audit")
        log = tmp_path / "audit.jsonl"
        settings: dict[str, Any] = self.SETTINGS | WITH_RULES | {"audit_log_file": str(log)}
        async with running_broker(tmp_path / "data", **settings) as running:
            add_users(running)
            await create_topic(await running.client(), "secret")
            client = Client(running, basic("alice", "secret"))
            assert await client.statuses() == [403, 403, 403, 200]
            assert (
                "User:alice at 127.0.0.1 may not DESCRIBE the topic 'secret' (HTTP)" in caplog.text
            )
            for path in (EXPLAIN, SEGMENTS, RETENTION, SKEW, HISTOGRAM):
                status, body, _ = await client.get(path.format("secret"))
                missing = await client.get(path.format("missing"))
                assert missing[:2] == (status, body.replace(b"secret", b"missing"))
                assert b"tidelog acl add --user alice --op describe --topic secret" in body

            # The right is asked before the other parameters are read.
            wrong = [f"/{page}?topic=secret&partition=x" for page in QUESTIONS]
            assert {(await client.get(path))[0] for path in wrong} == {403}
            allow(running, "alice", (ResourceType.TOPIC, "secret", Operation.READ))
            assert {(await client.get(path))[0] for path in wrong} == {400}
            assert await client.statuses() == [403, 200, 200, 200]
            assert (await client.get(SEGMENTS.format("missing")))[0] == 403

            allow(running, "alice", (ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE))
            status, exposition, _ = await client.get("/metrics")
            assert status == 200
            assert b'topic="secret"' in exposition

            super_user = Client(running, basic("admin", "pencil"))
            assert (await super_user.get(SEGMENTS.format("missing")))[0] == 401, "no such user yet"
        refused = [
            event
            for event in map(json.loads, log.read_text().splitlines())
            if event["event"] == "refused"
        ]
        no_rule = "no rule matches the resource (allow.everyone.if.no.acl.found = false)"
        assert (refused[0]["api"], refused[0]["rule"]) == ("HTTP", no_rule)

    async def test_guesses_wait_longer_and_longer_as_those_of_logins(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = self.SETTINGS | {
            "connection_failed_authentication_delay_ms": "1"
        }
        async with running_broker(tmp_path / "data", **settings) as running:
            add_users(running)
            guesses = 25
            for _ in range(guesses):
                status, _, _ = await Client(running, basic("alice", "wrong")).get("/metrics")
                assert status == 401
            failures = running.broker.security.failures
            assert failures.count("127.0.0.1") == 1 << (guesses + 1 - FREE)
            assert (await Client(running, basic("alice", "secret")).get("/metrics"))[0] == 200

    async def test_a_new_password_counts_at_once(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = self.SETTINGS
        async with running_broker(tmp_path / "data", **settings) as running:
            add_users(running)
            client = Client(running, basic("alice", "secret"))
            assert (await client.get("/metrics"))[0] == 200
            running.broker.security.credentials.apply({"SCRAM-SHA-512/alice": None})
            running.broker.security.credentials.apply({"SCRAM-SHA-256/alice": None})
            assert (await client.get("/metrics"))[0] == 401


class TestBearer:
    async def test_the_token_is_read_again_and_stands_for_a_user(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("first\n")
        settings: dict[str, Any] = ON_LOOPBACK | WITH_RULES | {
            "metrics_auth": "bearer", "metrics_auth_token": f"file:{token}",
        }  # fmt: skip
        async with running_broker(tmp_path / "data", **settings) as running:
            assert await Client(running, "Bearer first").statuses() == [403, 403, 403, 200]
            allow(running, "metrics", (ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE))
            assert await Client(running, "bearer first").statuses() == [200, 403, 403, 200]
            for wrong in (
                "Bearer fir",
                "Bearer first2",
                "Bearer",
                basic("metrics", "first"),
                None,
            ):
                assert await Client(running, wrong).statuses() == [401, 401, 401, 200]
            token.write_text("second")
            assert (await Client(running, "Bearer first").get("/metrics"))[0] == 401
            status, _, headers = await Client(running).get("/metrics")
            assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="tidelog"')
            assert (await Client(running, "Bearer second").get("/metrics"))[0] == 200
            for unusable in ("", "\n"):
                token.write_text(unusable)
                assert (await Client(running, "Bearer ").get("/metrics"))[0] == 401
            token.unlink()
            assert (await Client(running, "Bearer second").get("/metrics"))[0] == 401


class TestTls:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        signer = authority(tmp_path)
        for name in ("server", "renewed"):
            signed(tmp_path, signer, name)
        signed(tmp_path, signer, "device", subject="/CN=device")
        return tmp_path

    def settings(self, place: Path) -> dict[str, Any]:
        return ON_LOOPBACK | WITH_RULES | {
            "metrics_listener_security": "tls", "metrics_auth": "basic",
            "listener_name_metrics_ssl_keystore_location": str(place / "server.pem"),
            "listener_name_metrics_ssl_truststore_location": str(place / "ca.pem"),
            "listener_name_metrics_ssl_client_auth": "requested",
        }  # fmt: skip

    async def test_certificates_are_users_and_are_renewed(self, place: Path) -> None:
        plain = ssl.create_default_context(cafile=str(place / "ca.pem"))
        with_certificate = ssl.create_default_context(cafile=str(place / "ca.pem"))
        with_certificate.load_cert_chain(place / "device.pem")
        async with running_broker(place / "data", **self.settings(place)) as running:
            add_users(running)
            await create_topic(await running.client(), "secret")
            allow(running, "alice", (ResourceType.TOPIC, "secret", Operation.DESCRIBE))
            allow(running, "CN=device", (ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE))
            named = Client(running, basic("alice", "secret"), tls=plain)
            assert await named.statuses() == [403, 200, 200, 200]
            assert await Client(running, tls=plain).statuses() == [401, 401, 401, 200]
            device = Client(running, tls=with_certificate)
            assert await device.statuses() == [200, 403, 403, 200]
            assert (
                b'tidelog_certificate_expiry_timestamp_seconds{listener="METRICS",subject="CN='
                in (await device.get("/metrics"))[1]
            )

            def shown() -> str:
                return ssl.get_server_certificate(
                    ("127.0.0.1", int(running.ready.metrics_port or 0))
                )

            before = await asyncio.to_thread(shown)
            (place / "server.pem").write_bytes((place / "renewed.pem").read_bytes())
            await running.broker.certificates.reload_all()
            assert await asyncio.to_thread(shown) != before
            with pytest.raises((OSError, http.client.HTTPException)):
                await Client(running).get("/readyz")

    async def test_the_client_of_this_program_proves_who_it_is(self, place: Path) -> None:
        async with running_broker(place / "data", **self.settings(place)) as running:
            add_users(running)
            await create_topic(await running.client(), "t")
            allow(running, "alice", (ResourceType.TOPIC, "t", Operation.DESCRIBE))
            url = f"https://127.0.0.1:{running.ready.metrics_port}"
            security = Security(
                tls=True, ca_file=str(place / "ca.pem"),
                mechanism="PLAIN", username="alice", password="secret",
            )  # fmt: skip
            assert (await explain_lookup(url, "t", 0, 5, security))["found"] is None
            with pytest.raises(InvalidUse, match="asks who you are"):
                await explain_lookup(
                    url, "t", 0, 5, Security(tls=True, ca_file=str(place / "ca.pem"))
                )
            async with Admin(
                running.bootstrap
            ) as admin:  # a listener without users: found by itself
                with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
                    await admin.explain_lookup(TopicPartition("t", 0), 5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metrics.auth": "digest"}, "basic"),
        ({"metrics.auth": "bearer"}, "set metrics.auth.token=file:/PATH"),
        ({"metrics.auth": "basic", "metrics.listener": "0.0.0.0:0"}, "in clear over the network"),
        ({"metrics.listener.security": "tls"}, "a TLS listener has no certificate"),
        ({"metrics.listener.security": "ssl"}, "one of: none, tls"),
        ({"listeners": "METRICS://127.0.0.1:0",
          "listener.security.protocol.map": "METRICS:PLAINTEXT"}, "give the listener another name"),
        ({"metrics.auth": "bearer", "metrics.auth.token": "hunter2"}, "every user of this machine"),
    ],
)  # fmt: skip
def test_settings_that_would_protect_nothing_are_refused(
    settings: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigErrors) as refused:
        load(command_line={"log.dirs": "/data", **settings})
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


async def test_a_start_without_its_token_is_refused(tmp_path: Path) -> None:
    settings: dict[str, Any] = ON_LOOPBACK | {
        "metrics_auth": "bearer", "metrics_auth_token": f"file:{tmp_path}/missing",
    }  # fmt: skip
    with pytest.raises(Exception, match=r"metrics\.auth\.token cannot be used: .*No such file"):
        async with running_broker(tmp_path / "data", **settings):
            pass
