"""The doctor names each weakness of the security, with its cure, and nothing where all is good."""

import os
import secrets
import sys
import time
from pathlib import Path

import pytest

from broker.security.acls import KIND_ACL, format_acl
from broker.security.credentials import Upsertion
from cli.security import offline_users
from cli.security.offline_users import add_user
from cli.security.unmatched import why_it_never_matches
from cli.server import checkup
from cli.server.checkup import Finding, Verdict, examine_security
from config import load
from protocol.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from storage.directory.offline import open_journal
from storage.disk.files import RealFiles
from tests.support.certificates import authority, revocations, signed
from tests.support.identity_provider import SigningKey, jwks

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RULES = {"authorizer_class_name": STANDARD, "super_users": "User:admin"}
ON_NETWORK = {"insecure_allow": "true"}
GOOD, WARN, BAD = Verdict.GOOD, Verdict.WARN, Verdict.BAD


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def findings(data: Path, *, file_text: str | None = None, **settings: str) -> list[Finding]:
    config = load(
        file_text=file_text,
        file_name=str(data.parent / "server.properties"),
        command_line={
            "log.dirs": str(data),
            **{name.replace("_", "."): text for name, text in settings.items()},
        },
    )
    return list(examine_security(config))


def weaknesses(data: Path, **settings: str) -> list[tuple[Verdict, str, str]]:
    found = findings(data, **settings)
    assert all(one.cure for one in found if one.verdict is not GOOD)
    assert not any(one.cure for one in found if one.verdict is GOOD)
    return [(one.verdict, one.seen, one.cure) for one in found if one.verdict is not GOOD]


def rule(principal: str = "User:bob", **fields: object) -> Acl:
    values: dict[str, object] = {
        "resource_type": ResourceType.TOPIC, "name": "t", "pattern": PatternType.LITERAL,
        "principal": principal, "host": "*", "operation": Operation.READ,
        "permission": Permission.ALLOW,
    }  # fmt: skip
    return Acl(**(values | fields))  # type: ignore[arg-type]


def put_rules(data: Path, *rules: Acl) -> None:
    config = load(command_line={"log.dirs": str(data)})
    with open_journal(config, files=RealFiles(), random_bytes=secrets.token_bytes) as journal:
        journal.put_all(KIND_ACL, {secrets.token_hex(4): format_acl(one) for one in rules})


def test_the_default_has_no_weakness(data: Path) -> None:
    assert weaknesses(data) == []
    assert len(findings(data)) == 6


@pytest.mark.parametrize(
    ("settings", "verdict", "seen", "cure"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, WARN, "open to everyone", "--secure"),
        ({"listeners": "SASL_PLAINTEXT://0.0.0.0:9092"}, WARN, "records in clear", "SASL_SSL"),
        ({"listeners": "SASL_PLAINTEXT://0.0.0.0:9092", "sasl_enabled_mechanisms": "PLAIN"},
         BAD, "sends passwords and records in clear", "SASL_SSL"),
    ],
)  # fmt: skip
def test_listeners_in_clear_on_a_network(
    data: Path, settings: dict[str, str], verdict: Verdict, seen: str, cure: str
) -> None:
    add_user(str(data), "admin", "pencil", "SCRAM-SHA-512", 8192)
    ((found, text, to_do),) = weaknesses(data, **settings, **ON_NETWORK)
    assert found is verdict
    assert seen in text
    assert cure in to_do
    on_loopback = settings["listeners"].replace("0.0.0.0", "127.0.0.1")
    assert weaknesses(data, **(settings | {"listeners": on_loopback})) == []


class TestCertificates:
    @pytest.fixture
    def pem(self, tmp_path: Path) -> Path:
        path = signed(tmp_path, authority(tmp_path), "server")
        path.chmod(0o600)
        return path

    def settings(self, pem: Path) -> dict[str, str]:
        return {"listeners": "SSL://127.0.0.1:9092", "ssl_keystore_location": str(pem)}

    def test_a_good_one(self, data: Path, pem: Path) -> None:
        found = weaknesses(data, **self.settings(pem))
        assert [seen for _, seen, _ in found] == ["CN=server expires in 29 days"]

    def test_near_its_end_ended_and_from_the_future(
        self, data: Path, pem: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s = time.time()
        for days, verdict, said in (
            (31, BAD, "has expired 2 days ago"),
            (-2, BAD, "not valid yet"),
            (20, WARN, "in 9 days"),
        ):  # fmt: skip
            monkeypatch.setattr(time, "time", lambda days=days: now_s + days * 86_400 + 60)
            ((found, seen, cure),) = weaknesses(data, **self.settings(pem))
            assert (found, said in seen) == (verdict, True), seen
            assert cure
        monkeypatch.setattr(checkup, "EXPIRY_WARNING_DAYS", 5)
        monkeypatch.setattr(time, "time", lambda: now_s + 60)
        assert weaknesses(data, **self.settings(pem)) == []

    def test_for_another_host_missing_and_of_the_metrics_port(
        self, data: Path, pem: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkup, "EXPIRY_WARNING_DAYS", 5)
        elsewhere = self.settings(pem) | {"advertised_listeners": "SSL://broker.example:9092"}
        ((verdict, seen, _),) = weaknesses(data, **elsewhere)
        assert verdict is WARN
        assert seen == "it is for localhost, 127.0.0.1, but clients connect to broker.example"
        missing = self.settings(pem.with_name("missing.pem"))
        assert [verdict for verdict, _, _ in weaknesses(data, **missing)] == [BAD]
        metrics = {"metrics_listener_security": "tls", "ssl_keystore_location": str(pem)}
        assert weaknesses(data, **metrics) == []
        assert weaknesses(data, **metrics | {"ssl_keystore_location": "/missing"})[0][0] is BAD

    def test_suites_that_scanners_warn_of(
        self, data: Path, pem: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkup, "EXPIRY_WARNING_DAYS", 5)
        strong = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        settings = self.settings(pem) | {"ssl_cipher_suites": strong}
        assert weaknesses(data, **settings) == []
        settings["ssl_cipher_suites"] += ",TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"
        ((verdict, seen, _),) = weaknesses(data, **settings)
        assert (verdict, "AES_128_CBC_SHA may leak" in seen) == (WARN, True)

    def test_revocation_lists_near_their_end_and_ended(
        self, data: Path, pem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkup, "EXPIRY_WARNING_DAYS", 5)
        settings = self.settings(pem) | {
            "ssl_client_auth": "required",
            "ssl_truststore_location": str(tmp_path / "ca.pem"),
            "ssl_crl_location": str(revocations(tmp_path, tmp_path / "lists", days="3")),
        }
        assert weaknesses(data, **settings) == []
        now_s = time.time()
        for days, verdict in ((2.5, WARN), (4, BAD)):
            monkeypatch.setattr(time, "time", lambda days=days: now_s + days * 86_400)
            assert [found for found, _, _ in weaknesses(data, **settings)] == [verdict]
        assert weaknesses(data, **settings | {"ssl_crl_location": "/missing"})[0][0] is BAD

    def test_a_key_store_that_was_set_at_run_time(self, data: Path, pem: Path) -> None:
        config = load(command_line={"log.dirs": str(data)})
        name = "listener.name.ssl.ssl.keystore.location"
        with open_journal(config, files=RealFiles(), random_bytes=secrets.token_bytes) as journal:
            journal.set_broker_overrides({name: "/missing.pem"})
        ((verdict, seen, _),) = weaknesses(data, **self.settings(pem))
        assert (verdict, "ssl.keystore.location = /missing.pem" in seen) == (BAD, True)

    def test_wildcards_cover_one_label(self) -> None:
        assert checkup._covers(["*.example.com"], "Broker.example.com")
        assert not checkup._covers(["*.example.com"], "a.b.example.com")
        assert not checkup._covers(["*.example.com"], "example.com")


class TestFiles:
    @pytest.mark.parametrize(("mode", "is_bad"), [(0o600, False), (0o640, False), (0o644, True)])
    def test_a_key_that_others_read(
        self, data: Path, tmp_path: Path, mode: int, is_bad: bool
    ) -> None:
        pem = signed(tmp_path, authority(tmp_path), "server")
        pem.chmod(mode)
        found = weaknesses(data, listeners="SSL://127.0.0.1:1", ssl_keystore_location=str(pem))
        assert [cure for verdict, _, cure in found if verdict is BAD] == (
            [f"chmod 600 {pem}"] if is_bad else []
        )

    def test_a_password_file_the_journal_and_the_properties(self, data: Path) -> None:
        add_user(str(data), "admin", "pencil", "SCRAM-SHA-512", 8192)
        token = data / "token"
        for path in (token, data / "client.properties"):
            path.write_text("hunter2")
            path.chmod(0o604)
        (data / "metadata.journal").chmod(0o666)
        found = weaknesses(data, metrics_auth="bearer", metrics_auth_token=f"file:{token}")
        assert sorted(cure for verdict, _, cure in found if verdict is BAD) == [
            f"chmod 600 {data}/{name}"
            for name in ("client.properties", "metadata.journal", "token")
        ]
        assert not any("hunter2" in seen for _, seen, _ in found)

    def test_a_secret_in_a_settings_file_that_others_read(self, data: Path) -> None:
        text = "metrics.auth=bearer\nmetrics.auth.token=hunter2\n"
        file = data.parent / "server.properties"
        file.write_text(text)
        for mode, verdict in ((0o644, BAD), (0o600, GOOD)):
            file.chmod(mode)
            (found,) = (one for one in findings(data, file_text=text)
                        if str(file) in one.check or one.check == "secret files")  # fmt: skip
            assert found.verdict is verdict
            assert "hunter2" not in repr(found)

    def test_a_trust_store_that_others_write(self, data: Path, tmp_path: Path) -> None:
        signer = authority(tmp_path)
        pem = signed(tmp_path, signer, "server")
        pem.chmod(0o600)
        signer.chmod(0o666)
        found = weaknesses(
            data, listeners="SSL://127.0.0.1:1", ssl_keystore_location=str(pem),
            ssl_truststore_location=str(signer),
        )  # fmt: skip
        assert f"chmod go-w {signer}" in [cure for _, _, cure in found]

    def test_an_audit_log_that_others_write(self, data: Path, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        path.touch()
        for mode, wanted in ((0o640, []), (0o660, [f"chmod go-w {path}"])):
            path.chmod(mode)
            found = weaknesses(data, audit_log_file=str(path))
            assert [cure for _, _, cure in found] == wanted


SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092"}


def identity_provider_of(keys: Path) -> dict[str, str]:
    return SASL | {
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": keys.as_uri(),
        "sasl_oauthbearer_expected_issuer": "https://identity.example.com",
        "sasl_oauthbearer_expected_audience": "tidelog",
    }


class TestUsers:
    def test_a_listener_that_lets_no_client_in(self, data: Path) -> None:
        ((verdict, seen, cure),) = weaknesses(data, **SASL)
        assert (verdict, "there are none" in seen) == (BAD, True)
        assert cure == f"tidelog user add admin --data-dir {data}"
        add_user(str(data), "admin", "pencil", "SCRAM-SHA-512", 8192)
        assert weaknesses(data, **SASL) == []

    @pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI"])
    def test_users_of_other_places_need_no_password_here(
        self, data: Path, mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "jwks.json").write_bytes(jwks(SigningKey()))
        settings = identity_provider_of(tmp_path / "jwks.json") | {
            "sasl_enabled_mechanisms": mechanism,
            "authorizer_class_name": STANDARD,
            "super_users": "User:ann",
            "metrics_listener": "",
        }
        if mechanism == "GSSAPI":
            settings["sasl_kerberos_service_name"] = "kafka"
            monkeypatch.setattr(checkup, "missing_key", lambda *_: None)
        assert weaknesses(data, **settings) == []
        settings["sasl_enabled_mechanisms"] = f"SCRAM-SHA-512,{mechanism}"
        assert weaknesses(data, **settings) == []

    def test_keys_of_an_identity_provider_that_cannot_be_read(
        self, data: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "jwks.json"
        settings = identity_provider_of(path)
        ((verdict, seen, cure),) = weaknesses(data, **settings)
        assert verdict is BAD
        assert seen == (
            f"sasl.oauthbearer.jwks.endpoint.url = {path.as_uri()} cannot be read: No such file or "
            "directory"
        )
        assert cure == "put the keys into a file there that the broker may read"
        path.write_text("<html>")
        ((_, seen, cure),) = weaknesses(data, **settings)
        assert "is no JSON Web Key Set: it is not JSON" in seen
        assert cure == "give the address that the provider publishes as its jwks_uri"
        path.write_bytes(jwks(SigningKey()))
        assert weaknesses(data, **settings) == []
        assert [one.seen for one in findings(data, **settings) if "identity" in one.check] == [
            "its keys can be read"
        ]

    def test_tokens_without_a_signature(self, data: Path) -> None:
        settings = SASL | {
            "sasl_enabled_mechanisms": "OAUTHBEARER",
            "sasl_oauthbearer_unsecured": "true",
        }
        ((verdict, seen, _),) = weaknesses(data, **settings)
        assert (verdict, seen.partition(":")[0]) == (WARN, "tokens need no signature")

    def test_kerberos_needs_its_package(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What it says of keys is tested where the package is: `tests/kerberos`."""
        monkeypatch.setitem(sys.modules, "gssapi", None)
        monkeypatch.delitem(sys.modules, "broker.security.kerberos.exchange", raising=False)
        settings = SASL | {"sasl_enabled_mechanisms": "GSSAPI"}
        ((verdict, seen, cure),) = weaknesses(data, **settings)
        assert verdict is BAD
        assert seen.startswith("GSSAPI needs a package that is not here (")
        assert cure == "pip install 'tidelog[kerberos]'"

    def test_weak_keys(self, data: Path) -> None:
        add_user(str(data), "weak", "pencil", "SCRAM-SHA-256", 4096)
        bare = Upsertion(name="bare", mechanism=2, iterations=8192, salt=b"x", salted_password=b"y")
        with offline_users._users_of(str(data)) as (journal, credentials):
            offline_users._put(journal, offline_users._planned(credentials, bare))
        found = weaknesses(data)
        assert [verdict for verdict, _, _ in found] == [WARN, WARN]
        assert "weak have fewer than 8192 iterations" in found[0][1]
        assert "bare have a salt of less than 8 bytes" in found[1][1]

    def test_super_users(self, data: Path) -> None:
        nothing = weaknesses(data, authorizer_class_name=STANDARD)
        assert "everything is refused" in nothing[0][1]
        anyone = RULES | {"super_users": "User:ANONYMOUS;User:*;Group:ops;User:admin"}
        said = [seen for _, seen, _ in weaknesses(data, **anyone)]
        assert "who proves nothing may do everything" in said[0]
        assert said[1:4] == ["User:* never matches", "Group:ops never matches",
                             "User:admin is one, but there is no such user"]  # fmt: skip

    def test_users_that_may_do_nothing(self, data: Path) -> None:
        for name in ("admin", "bob", "carol"):
            add_user(str(data), name, "pencil", "SCRAM-SHA-512", 8192)
        put_rules(data, rule("User:bob"))
        found = [seen for _, seen, _ in weaknesses(data, metrics_listener="", **RULES)]
        assert found == ["carol may do nothing: no rule names them"]


class TestRules:
    def check(self, data: Path, *rules: Acl, **settings: str) -> list[tuple[Verdict, str, str]]:
        add_user(str(data), "admin", "pencil", "SCRAM-SHA-512", 8192)
        put_rules(data, *rules)
        return weaknesses(data, **{"metrics_listener": "", **RULES, **settings})

    def test_a_rule_for_everyone(self, data: Path) -> None:
        ((verdict, seen, _),) = self.check(data, rule("User:*"), rule("User:*", host="10.0.0.1"))
        assert verdict is WARN
        assert seen == "everyone is let in: ALLOW READ on literal topic 't' to User:* from *"

    def test_a_denial_for_everyone_is_none_of_them(self, data: Path) -> None:
        assert self.check(data, rule("User:*", permission=Permission.DENY)) == []

    def test_rules_without_an_authorizer(self, data: Path) -> None:
        ((verdict, seen, _),) = self.check(data, rule(), authorizer_class_name="")
        assert (verdict, "none of them counts" in seen) == (WARN, True)

    def test_everyone_where_there_is_no_rule(self, data: Path) -> None:
        ((_, seen, _),) = self.check(data, allow_everyone_if_no_acl_found="true")
        assert "everyone may use what no rule names" in seen

    def test_a_denial_that_never_matches_is_worse_than_a_right(self, data: Path) -> None:
        found = self.check(
            data,
            rule(host="10.0.0.0/8"),
            rule(host="10.0.0.0/8", permission=Permission.DENY),
            rule("User:admin", permission=Permission.DENY),
        )
        assert [verdict for verdict, _, _ in found] == [WARN, BAD, BAD]
        assert "super users pass every rule" in found[2][1]

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({}, None),
            ({"host": "::1"}, None),
            ({"operation": Operation.ALL}, None),
            ({"host": "localhost"},
             "since a host is one address or *, neither a name nor a network"),
            ({"principal": "Group:x"}, "since principals are of the type User"),
            ({"principal": "User:"}, "since no user has an empty name"),
            ({"host": "10.0.0.1/33"},
             "since a host is one address or *, neither a name nor a network"),
            ({"name": "*"}, None),
            ({"name": "a*b"}, "since names of topics have at most 249 of a-z A-Z 0-9 . _ -"),
            ({"name": "n" * 249}, None),
            ({"name": "n" * 250}, "since names of topics have at most 249 of a-z A-Z 0-9 . _ -"),
            ({"name": "..", "pattern": PatternType.PREFIXED}, None),
            ({"name": ".."}, "since names of topics have at most 249 of a-z A-Z 0-9 . _ -"),
            ({"name": "*", "pattern": PatternType.PREFIXED},
             "since names of topics have at most 249 of a-z A-Z 0-9 . _ -"),
            ({"operation": Operation.IDEMPOTENT_WRITE},
             "since IDEMPOTENT_WRITE is never done to a topic"),
            ({"resource_type": ResourceType.CLUSTER, "name": CLUSTER_NAME},
             "since READ is never done to a cluster"),
        ],
    )  # fmt: skip
    def test_why_it_never_matches(self, fields: dict[str, object], reason: str | None) -> None:
        principal = str(fields.pop("principal", "User:bob"))
        assert why_it_never_matches(rule(principal, **fields), ()) == reason


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metrics_listener": "0.0.0.0:1"}, "shows figures without names to everyone"),
        ({"metrics_listener": "0.0.0.0:1", "insecure_allow": "true"}, "shows everything"),
        ({"metrics_listener": "127.0.0.1:1"}, None),
        ({"metrics_listener": ""}, None),
        ({"metrics_auth": "basic"}, None),
    ],
)
def test_the_metrics_port(data: Path, settings: dict[str, str], said: str | None) -> None:
    found = weaknesses(data, **settings)
    assert [seen for _, seen, _ in found if said is None or said not in seen] == []
    assert len(found) == (said is not None)


def test_the_metrics_port_beside_rules(data: Path) -> None:
    add_user(str(data), "admin", "pencil", "SCRAM-SHA-512", 8192)
    ((_, seen, cure),) = weaknesses(data, **RULES)
    assert "reads names of topics" in seen
    assert "metrics.auth=basic" in cure


def test_settings_made_at_run_time_that_do_not_fit_are_a_line_each(data: Path) -> None:
    names = [f"listener.name.gone.ssl.keystore.{what}" for what in ("location", "type")]
    config = load(command_line={"log.dirs": str(data)})
    with open_journal(config, files=RealFiles(), random_bytes=secrets.token_bytes) as journal:
        journal.set_broker_overrides(dict.fromkeys(names, "PEM"))
    found = findings(data)
    assert [(one.verdict, one.seen.partition(" = ")[0]) for one in found] == [
        (BAD, name) for name in names
    ]


def test_a_damaged_journal_is_named_and_no_more_is_asked(data: Path) -> None:
    config = load(command_line={"log.dirs": str(data)})
    with open_journal(config, files=RealFiles(), random_bytes=secrets.token_bytes) as journal:
        journal.put_all(KIND_ACL, {"x": {"name": "t"}})
    ((verdict, seen, cure),) = weaknesses(data)
    assert (verdict, "not an access rule" in seen) == (BAD, True)
    assert "restore" in cure


def test_nothing_is_changed(data: Path) -> None:
    add_user(str(data), "admin", "pencil", "SCRAM-SHA-512", 8192)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in data.iterdir()}
    with (data / "metadata.journal").open("ab") as journal:
        journal.write(b"torn")
    weaknesses(data, **RULES)
    after = (data / "metadata.journal").read_bytes()
    assert after == before[data / "metadata.journal"][0] + b"torn"
    assert os.listdir(data) == [path.name for path in before]
