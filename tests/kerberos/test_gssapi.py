"""Logins with tickets of a real KDC: message by message, and by Java's and Python's clients."""

import asyncio
import shutil
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import gssapi
import pytest

from broker.errors import StartError
from cli.server.checkup import Verdict, examine_security
from config import load
from protocol.api.sasl_authenticate import SaslAuthenticateRequest
from protocol.error_codes import ErrorCode
from tests.compat import harness
from tests.compat.matrix import CLIENTS, PROGRAMS, Client
from tests.integration.cli.test_security_recipes import recipe, serving
from tests.integration.security.test_sasl import handshake, works
from tests.kerberos.realm import REALM, SERVICE, Realm, running_realm
from tests.support.broker import RawClient, RunningBroker, running_broker

COUNT = 20
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
JAAS = "listener.name.kerberos.gssapi.sasl.jaas.config"


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    with running_realm() as made:
        yield made


def settings(realm: Realm, **changed: str) -> dict[str, Any]:
    (realm.folder / "jaas").write_text(
        f'{MODULE} useKeyTab=true storeKey=true keyTab="{realm.keytab}" principal="{SERVICE}";'
    )
    return {
        "listeners": "KERBEROS://localhost:0",
        "listener.security.protocol.map": "KERBEROS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1.$2]s/device/pump/,DEFAULT",
        JAAS: f"file:{realm.folder / 'jaas'}",
        "connection.failed.authentication.delay.ms": "0",
        **changed,
    }


@pytest.fixture
async def secured(tmp_path: Path, realm: Realm) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", **settings(realm)) as running:
        yield running


@pytest.fixture
async def client(secured: RunningBroker) -> RawClient:
    return await secured.client()


class Ticket:
    """The client's side of RFC 4752."""

    def __init__(self, cache: Path, service: str = "kafka@localhost") -> None:
        credentials = gssapi.Credentials(usage="initiate", store={"ccache": str(cache)})
        name = gssapi.Name(service, gssapi.NameType.hostbased_service)
        self.context = gssapi.SecurityContext(name=name, creds=credentials, usage="initiate")

    def first(self) -> bytes:
        return self.context.step() or b""

    def layer(self, offer: bytes, choice: bytes = b"\1\0\0\0", name: str = "") -> bytes:
        assert self.context.unwrap(offer).message == b"\1\0\0\0"
        return bytes(self.context.wrap(choice + name.encode(), False).message)


async def send(client: RawClient, token: bytes) -> Any:
    return await client.request(SaslAuthenticateRequest(auth_bytes=token), 2)


async def until_layer(client: RawClient, ticket: Ticket) -> bytes:
    """The layers on offer, after both sides have proved themselves."""
    assert await handshake(client, "GSSAPI") == 0
    answer = await send(client, ticket.first())
    assert answer.error_code == 0, answer
    assert ticket.context.step(bytes(answer.auth_bytes)) is None
    assert ticket.context.complete
    return bytes((await send(client, b"")).auth_bytes)


async def log_in(client: RawClient, ticket: Ticket, **layer: Any) -> Any:
    return await send(client, ticket.layer(await until_layer(client, ticket), **layer))


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        (f"ann@{REALM}", "ann"),
        (f"device/seven@{REALM}", "pump.seven"),
    ],
)
async def test_a_ticket_names_a_user(
    principal: str,
    name: str,
    client: RawClient,
    realm: Realm,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    answer = await log_in(client, Ticket(realm.ticket_of(principal)))
    assert (answer.error_code, bytes(answer.auth_bytes), answer.session_lifetime_ms) == (0, b"", 0)
    assert await works(client)
    assert f"authenticated as User:{name} with GSSAPI" in caplog.text


async def test_an_authorization_id_has_no_effect(client: RawClient, realm: Realm) -> None:
    ticket = Ticket(realm.ticket_of(f"ann@{REALM}"))
    assert (await log_in(client, ticket, name="kafka@localhost")).error_code == 0


async def test_bare_tokens_after_an_old_handshake(client: RawClient, realm: Realm) -> None:
    async def exchange(token: bytes) -> bytes:
        client.send_raw(len(token).to_bytes(4, "big") + token)
        return await client.receive_frame()

    ticket = Ticket(realm.ticket_of(f"ann@{REALM}"))
    assert await handshake(client, "GSSAPI", version=0) == 0
    ticket.context.step(await exchange(ticket.first()))
    assert await exchange(ticket.layer(await exchange(b""))) == b""
    assert await works(client)


async def refused(client: RawClient, token: bytes) -> None:
    answer = await send(client, token)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism GSSAPI"
    )
    assert await client.is_closed_by_broker()


@pytest.mark.parametrize("token", [b"", b"\x60", b"x" * 1000, b"\x60\x82\x02\x00" + bytes(512)])
async def test_what_is_no_ticket_is_refused(client: RawClient, token: bytes) -> None:
    assert await handshake(client, "GSSAPI") == 0
    await refused(client, token)


async def test_a_ticket_for_another_service_is_refused(client: RawClient, realm: Realm) -> None:
    realm.add(f"other/localhost@{REALM}", realm.folder / "other.keytab")
    ticket = Ticket(realm.ticket_of(f"ann@{REALM}"), "other@localhost")
    assert await handshake(client, "GSSAPI") == 0
    await refused(client, ticket.first())


@pytest.mark.parametrize("choice", [b"\2\0\0\0", b"\4\0\0\0", b"\0\0\0\0", b"\1\0\0", b""])
async def test_a_layer_that_is_not_on_offer_is_refused(
    choice: bytes, client: RawClient, realm: Realm
) -> None:
    ticket = Ticket(realm.ticket_of(f"ann@{REALM}"))
    await refused(client, ticket.layer(await until_layer(client, ticket), choice))


async def test_an_unsigned_choice_is_refused(client: RawClient, realm: Realm) -> None:
    await until_layer(client, Ticket(realm.ticket_of(f"ann@{REALM}")))
    await refused(client, b"\1\0\0\0")


async def test_a_principal_without_a_name_is_refused(
    tmp_path: Path, realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    rules = {"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](b.*)"}
    async with running_broker(tmp_path / "data", **settings(realm, **rules)) as running:
        client = await running.client()
        ticket = Ticket(realm.ticket_of(f"ann@{REALM}"))
        await refused(client, ticket.layer(await until_layer(client, ticket)))
    assert f"no rule of sasl.kerberos.principal.to.local.rules names ann@{REALM}" in caplog.text


async def test_a_default_keytab_serves_too(
    tmp_path: Path, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_KTNAME", str(realm.keytab))
    given = settings(realm)
    del given[JAAS]
    async with running_broker(tmp_path / "data", **given) as running:
        answer = await log_in(await running.client(), Ticket(realm.ticket_of(f"ann@{REALM}")))
        assert answer.error_code == 0


@pytest.mark.parametrize(
    ("jaas", "complaint"),
    [
        (f'{MODULE} keyTab="/none" principal="{SERVICE}";', "no key for kafka/localhost.*/none"),
        (f'{MODULE} keyTab="KEYTAB" principal="x/y@{REALM}";', f"no key for x/y@{REALM} in"),
        ("x.ScramLoginModule required;", "is no line of Krb5LoginModule; write com.sun"),
        ("nonsense", "is no line of Krb5LoginModule"),
        (None, "gssapi.sasl.jaas.config cannot be read: .*No such file"),
    ],
)
async def test_a_broker_without_a_key_does_not_start(
    tmp_path: Path, realm: Realm, jaas: str | None, complaint: str
) -> None:
    given = settings(realm)
    path = tmp_path / "jaas"
    given[JAAS] = f"file:{path}"
    if jaas is not None:
        path.write_text(jaas.replace("KEYTAB", str(realm.keytab)))
    with pytest.raises(StartError, match=complaint):
        async with running_broker(tmp_path / "data", **given):
            pass


def doctored(
    realm: Realm, changed: dict[str, str], *, has_jaas: bool = True
) -> list[tuple[Verdict, str, str]]:
    """What the doctor says of Kerberos."""
    given = settings(realm) | changed
    if not has_jaas:
        del given[JAAS]
    config = load(command_line=given)
    found = [one for one in examine_security(config) if one.check.startswith("Kerberos")]
    return [(one.verdict, one.seen, one.cure) for one in found]


GOOD = [(Verdict.GOOD, "there is a key for each name that clients connect to", "")]


@pytest.mark.parametrize("has_jaas", [True, False])
def test_the_doctor_misses_the_key_of_the_name_that_clients_connect_to(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_jaas: bool
) -> None:
    keytab = tmp_path / "two.keytab"
    realm.add(f"kafka/broker.example.com@{REALM}", keytab)
    monkeypatch.setenv("KRB5_KTNAME", str(keytab))
    changed = {"log.dirs": str(tmp_path / "data")}
    name = "broker.example.com"
    if has_jaas:
        path = tmp_path / "jaas"
        principal = f"kafka/{name}@{REALM}"
        path.write_text(f'{MODULE} keyTab="{keytab}" principal="{principal}";')
        changed[JAAS] = f"file:{path}"

    def examined(**more: str) -> list[tuple[Verdict, str, str]]:
        return doctored(realm, changed | more, has_jaas=has_jaas)

    def advertised(host: str) -> list[tuple[Verdict, str, str]]:
        return examined(**{"advertised.listeners": f"KERBEROS://{host}:9092"})

    assert advertised(name) == advertised(name.upper()) == GOOD
    ((verdict, seen, cure),) = advertised("other.example.com")
    assert verdict is Verdict.WARN
    assert seen == (
        "there is no key for kafka/other.example.com, but the broker tells its clients to connect "
        "to other.example.com"
    )
    assert cure.startswith("put the key of kafka/other.example.com into the keytab, or set")
    # Without advertised.listeners it is the bound host, or this machine's name.
    ((_, seen, _),) = examined()
    assert "no key for kafka/localhost," in seen
    ((_, seen, _),) = examined(listeners="KERBEROS://0.0.0.0:9092")
    assert f"no key for kafka/{socket.gethostname().lower()}," in seen


def test_the_doctor_says_why_a_broker_would_not_start(realm: Realm, tmp_path: Path) -> None:
    ((verdict, seen, cure),) = doctored(realm, {"sasl.kerberos.service.name": ""})
    assert (verdict, seen) == (Verdict.BAD, "GSSAPI needs sasl.kerberos.service.name")
    assert cure == "set it, usually to kafka"


async def test_a_service_needs_its_name(tmp_path: Path, realm: Realm) -> None:
    given = settings(realm, **{"sasl.kerberos.service.name": ""})
    with pytest.raises(StartError, match=r"needs sasl\.kerberos\.service\.name; set it"):
        async with running_broker(tmp_path / "data", **given):
            pass


async def test_the_recipe_of_the_documentation(tmp_path: Path, realm: Realm) -> None:
    serve, clients = recipe("Kerberos")
    assert clients == []
    shutil.copy(realm.keytab, tmp_path / "kafka.keytab")
    with serving(serve, tmp_path, {"KRB5_CONFIG": str(realm.config)}) as port:
        trusted = ssl.create_default_context(cafile=tmp_path / "data" / "ca.pem")
        client = await RawClient.connect("localhost", int(port), trusted)
        answer = await log_in(client, Ticket(realm.ticket_of(f"ann@{REALM}")))
        assert answer.error_code == 0
        await client.close()


def write_and_read(client: Client, bootstrap: str, arguments: dict[str, Any]) -> None:
    where = {"bootstrap": bootstrap, "topic": "t", "security": "SASL_PLAINTEXT", **arguments}
    base = int(time.time() * 1000)
    produced = harness.run(client, "produce", count=COUNT, partitions=1, base=base, **where)
    assert produced == {"acked": COUNT}
    consumed = harness.run(client, "consume", group="g", count=COUNT, **where)
    assert [record[3] for record in consumed["records"]] == [f"key-{n}" for n in range(COUNT)]


async def test_kafka_python(
    secured: RunningBroker, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", str(realm.ticket_of(f"ann@{REALM}")))
    program = [sys.executable, str(PROGRAMS / "kafka_python_client.py")]
    client = Client(name="kafka-python", language="Python", command=lambda: program)
    bootstrap = f"localhost:{secured.port}"
    await asyncio.to_thread(write_and_read, client, bootstrap, {"mechanism": "GSSAPI"})


@pytest.mark.jvm
async def test_java(secured: RunningBroker, realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    principal = f"java@{REALM}"
    keytab = realm.folder / "java.keytab"
    realm.add(principal, keytab)
    properties = realm.folder / "java.properties"
    properties.write_text(
        "sasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" '
        f'principal="{principal}";\n'
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.config}")
    (client,) = (client for client in CLIENTS if client.name == "Java 4.3.1")
    arguments = {"mechanism": "GSSAPI", "properties": properties}
    await asyncio.to_thread(write_and_read, client, f"localhost:{secured.port}", arguments)
