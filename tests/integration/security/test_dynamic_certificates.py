"""Key and trust stores that a request sets while the broker runs (KIP-226)."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiokafka
import pytest

from broker.clocks.clock import SystemClock
from broker.errors import StartError
from broker.node import Broker
from broker.security.tls.certificate import read_certificate
from cli.server.checkup import Verdict, examine_security
from config import BrokerConfig, load
from protocol.api import describe_configs, incremental_alter_configs
from protocol.api.alter_configs import AlterConfigsRequest
from protocol.api.alter_configs import AlterConfigsResource as WholeResource
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.metadata import MetadataRequest
from protocol.error_codes import ErrorCode
from protocol.structs import ConfigText as WholeConfig
from storage.directory.metadata_journal import JOURNAL_FILE
from tests.support.broker import (
    RawClient,
    RunningBroker,
    broker_process,
    broker_settings,
    running_broker,
)
from tests.support.certificates import authority, openssl, signed
from tests.support.clock import DAY_MS

OWN = "listener.name.ssl."
LOCATION = f"{OWN}ssl.keystore.location"
SET, DELETE = 0, 1
BROKER = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    signer = authority(directory)
    for name in ("one", "two"):
        signed(directory, signer, name, subject="/CN=server")
    signed(
        directory,
        signer,
        "more",
        subject="/CN=server",
        addresses="DNS:localhost,IP:127.0.0.1,DNS:b",
    )
    signed(directory, signer, "fewer", subject="/CN=server", addresses="IP:127.0.0.1")
    signed(directory, signer, "other", subject="/CN=other")
    signed(directory, signer, "device", subject="/CN=device")
    signed(directory, authority(directory, "next"), "stranger", subject="/CN=stranger")
    return directory


@pytest.fixture
def settings(place: Path) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl_keystore_location": str(place / "one.pem"),
    }


@pytest.fixture
async def running(tmp_path: Path, settings: dict[str, Any]) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", **settings) as running:
        yield running


async def alter(
    running: RunningBroker,
    changes: Mapping[str, str | None],
    *,
    name: str = "1",
    validate_only: bool = False,
) -> tuple[int, str]:
    """As `alter_over`, over a connection in clear."""
    client = await running.client()
    found = await alter_over(client, changes, name=name, validate_only=validate_only)
    await client.close()
    return found


async def alter_over(
    client: RawClient,
    changes: Mapping[str, str | None],
    *,
    name: str = "1",
    validate_only: bool = False,
) -> tuple[int, str]:
    """The error and its text; None as a value deletes."""
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=BROKER,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=DELETE if value is None else SET, value=value
                    )
                    for key, value in changes.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    (answer,) = (await client.request(request, 1)).responses
    return answer.error_code, answer.error_message or ""


async def described(running: RunningBroker, *names: str) -> dict[str, Any]:
    client = await running.client()
    request = describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=BROKER, resource_name="1", configuration_keys=list(names)
            )
        ],
        include_synonyms=True,
    )
    (answer,) = (await client.request(request, 4)).results
    return {config.name: config for config in answer.configs}


def fingerprint(pem: Path) -> str:
    return read_certificate(openssl("x509", "-in", str(pem), "-outform", "DER")).fingerprint


async def shown(running: RunningBroker) -> str:
    """The fingerprint of the certificate that a new client gets."""
    return await shown_at(running.ready.ports["SSL"])


async def shown_at(port: int) -> str:
    """The same at a port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return read_certificate(der).fingerprint


async def test_a_key_store_is_replaced_and_stays_over_a_start(
    tmp_path: Path, settings: dict[str, Any], place: Path
) -> None:
    trusting = ssl.create_default_context(cafile=str(place / "ca.pem"))
    async with running_broker(tmp_path / "data", **settings) as running:
        former = await RawClient.connect("127.0.0.1", running.ready.ports["SSL"], trusting)
        assert await shown(running) == fingerprint(place / "one.pem")
        assert await alter(running, {LOCATION: str(place / "two.pem")}) == (0, "")
        assert await shown(running) == fingerprint(place / "two.pem")
        assert (await former.request(MetadataRequest(topics=[]), 12)).brokers, "not dropped"
        await former.close()
        shown_to = running.broker.metrics.tls
        assert {(listener, version) for listener, version, _ in shown_to} == {("SSL", "TLSv1.3")}
        assert sum(shown_to.values()) == 3
        ours = (await described(running, LOCATION))[LOCATION]
        assert (ours.value, ours.read_only, ours.config_source) == (
            str(place / "two.pem"),
            False,
            2,
        )
    async with running_broker(tmp_path / "data", **settings) as running:
        assert await shown(running) == fingerprint(place / "two.pem")
        assert await alter(running, {LOCATION: None}) == (0, "")
        assert await shown(running) == fingerprint(place / "one.pem")


async def test_the_same_path_is_read_again(
    running: RunningBroker, tmp_path: Path, place: Path
) -> None:
    live = tmp_path / "live.pem"
    live.write_bytes((place / "one.pem").read_bytes())
    assert await alter(running, {LOCATION: str(live)}) == (0, "")
    live.write_bytes((place / "two.pem").read_bytes())
    assert await alter(running, {"log.retention.ms": "100000"}) == (0, "")
    assert await shown(running) == fingerprint(place / "one.pem"), "not asked for"
    assert await alter(running, {LOCATION: str(live)}) == (0, "")
    assert await shown(running) == fingerprint(place / "two.pem")
    live.write_text("no PEM")
    for _ in range(2):
        code, text = await alter(running, {LOCATION: str(live)})
        assert (code, text) == (
            ErrorCode.INVALID_REQUEST,
            f"listener SSL: ssl.keystore.location = {live}: it has no PEM key, or "
            "ssl.key.password does not decrypt it",
        )
    assert await shown(running) == fingerprint(place / "two.pem")
    assert await alter(running, {"log.retention.ms": "200000"}) == (0, ""), "another matter"


@pytest.mark.parametrize(
    ("changes", "name", "complaint"),
    [
        ({LOCATION: "/nowhere.pem"}, "1", "listener SSL: ssl.keystore.location = /nowhere.pem: No"),
        ({LOCATION: "ca.pem"}, "1", "it has no PEM key"),
        ({LOCATION: "/dev/zero"}, "1", "/dev/zero is no file"),
        ({f"{OWN}ssl.key.password": "file:/dev/zero"}, "1", "/dev/zero is no file"),
        ({LOCATION: "/"}, "1", "/ is no file"),
        ({LOCATION: "other.pem"}, "1", "of CN=other, the one in force of CN=server; ssl.allow.dn"),
        ({LOCATION: "fewer.pem"}, "1", "not for localhost, the one in force is; ssl.allow.san"),
        ({LOCATION: "two.pem"}, "", "is of one broker; name this one, 1."),
        (
            {
                LOCATION: "/nowhere.jks",
                f"{OWN}ssl.keystore.type": "JKS",
                f"{OWN}ssl.keystore.password": "hunter2",
            },
            "1",
            "listener SSL: ssl.keystore.location = /nowhere.jks: No",
        ),
        (
            {"ssl.keystore.location": "two.pem"},
            "1",
            "for one listener only; write listener.name.NAME.ssl.keystore.location",
        ),
        ({"listener.name.nope.ssl.keystore.location": "two.pem"}, "1", "no such broker setting"),
        ({f"{OWN}ssl.keystore.type": "BKS"}, "1", "PEM, PKCS12, JKS"),
        ({f"{OWN}ssl.keystore.password": "hunter2"}, "1", "a PEM file has no password"),
        ({f"{OWN}ssl.keystore.key": "hunter2"}, "1", "a key is given as a file and inline"),
        ({f"{OWN}ssl.client.auth": "required"}, "1", "cannot change while the broker runs"),
        ({f"{OWN}ssl.cipher.suites": "x"}, "1", "cannot change while the broker runs"),
        ({"listener.name.nope.ssl.key.password": "hunter2"}, "1", "no such broker setting"),
    ],
)
async def test_what_cannot_be_used_changes_nothing(
    running: RunningBroker, place: Path, changes: dict[str, str], name: str, complaint: str
) -> None:
    whole = {
        key: str(place / value) if value.endswith(".pem") and "/" not in value else value
        for key, value in changes.items()
    }
    code, text = await alter(running, {**whole, "log.retention.ms": "123456"}, name=name)
    assert code == ErrorCode.INVALID_REQUEST
    assert complaint in text
    assert "hunter2" not in text
    assert running.broker.topics.broker_overrides == {}
    assert await shown(running) == fingerprint(place / "one.pem")


async def test_a_certificate_for_more_hosts_and_validation_alone(
    running: RunningBroker, place: Path
) -> None:
    assert await alter(running, {LOCATION: str(place / "two.pem")}, validate_only=True) == (0, "")
    code, _ = await alter(running, {LOCATION: "/nowhere.pem"}, validate_only=True)
    assert code == ErrorCode.INVALID_REQUEST
    assert await shown(running) == fingerprint(place / "one.pem")
    assert await alter(running, {LOCATION: str(place / "more.pem")}) == (0, "")
    assert await shown(running) == fingerprint(place / "more.pem")


async def test_other_names_where_the_settings_allow_them(
    tmp_path: Path, settings: dict[str, Any], place: Path
) -> None:
    settings |= {"ssl_allow_dn_changes": "true", f"{OWN}ssl.allow.san.changes": "true"}
    async with running_broker(tmp_path / "data", **settings) as running:
        for name in ("other", "fewer"):
            assert await alter(running, {LOCATION: str(place / f"{name}.pem")}) == (0, "")
            assert await shown(running) == fingerprint(place / f"{name}.pem")


async def test_a_key_in_the_request_is_never_shown(
    running: RunningBroker, tmp_path: Path, place: Path
) -> None:
    key = (place / "two.key").read_text()
    chain = openssl("x509", "-in", str(place / "two.pem")).decode()
    inline = {
        f"{OWN}ssl.keystore.location": "",
        f"{OWN}ssl.keystore.key": key,
        f"{OWN}ssl.keystore.certificate.chain": chain,
    }
    assert await alter(running, inline) == (0, "")
    assert await shown(running) == fingerprint(place / "two.pem")
    ours = await described(running)
    for name in inline:
        config = ours[name]
        is_secret = "location" not in name
        assert config.is_sensitive is is_secret
        assert config.value == (None if is_secret else "")
        assert {one.value for one in config.synonyms} == {None if is_secret else ""}
    assert key not in repr(running.broker.topics.broker_config)
    journal = tmp_path / "data" / JOURNAL_FILE
    assert json.dumps(key)[1:-1].replace('"', '\\"') in journal.read_text()
    assert await alter(running, dict.fromkeys(inline)) == (0, "")
    assert "PRIVATE KEY" not in journal.read_text(), "no former secret is left"
    assert await shown(running) == fingerprint(place / "one.pem")


async def test_another_authority_is_trusted_from_now_on(
    tmp_path: Path, settings: dict[str, Any], place: Path
) -> None:
    settings |= {
        "ssl_truststore_location": str(place / "ca.pem"),
        f"{OWN}ssl.client.auth": "required",
    }

    async def may_enter(running: RunningBroker, name: str) -> bool:
        context = ssl.create_default_context(cafile=str(place / "ca.pem"))
        context.load_cert_chain(place / f"{name}.pem")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        try:
            client = await RawClient.connect("127.0.0.1", running.ready.ports["SSL"], context)
        except OSError:
            return False
        assert (await client.request(MetadataRequest(topics=[]), 12)).brokers
        await client.close()
        return True

    async with running_broker(tmp_path / "data", **settings) as running:
        assert await may_enter(running, "device")
        assert not await may_enter(running, "stranger")
        trust = f"{OWN}ssl.truststore.location"
        assert await alter(running, {trust: str(place / "next.pem")}) == (0, "")
        assert not await may_enter(running, "device")
        assert await may_enter(running, "stranger")
        code, text = await alter(running, {trust: ""})
        assert code == ErrorCode.INVALID_REQUEST
        assert "none would be trusted" in text
        assert await may_enter(running, "stranger")


async def test_a_start_refuses_a_store_that_is_gone(
    tmp_path: Path, settings: dict[str, Any], place: Path
) -> None:
    """It falls back to no former one: that one may trust more."""
    live = tmp_path / "live.pem"
    live.write_bytes((place / "two.pem").read_bytes())
    async with running_broker(tmp_path / "data", **settings) as running:
        assert await alter(running, {LOCATION: str(live)}) == (0, "")
    live.unlink()
    broker = Broker(load(command_line=broker_settings(tmp_path / "data", settings)))
    with pytest.raises(StartError) as caught:
        await broker.start()
    assert str(caught.value) == (
        f"listener SSL: ssl.keystore.location = {live}: No such file or directory; {LOCATION} was "
        "set at run time, and neither --set nor the settings' file replaces that: put a store that "
        "can be used at this path and start again; then kafka-configs.sh --alter --delete-config "
        f"{LOCATION} returns to the settings' file (tidelog docs security)"
    )
    found = [one for one in examine_security(broker.config) if LOCATION in one.cure]
    assert [(one.check, one.verdict) for one in found] == [("certificate of SSL", Verdict.BAD)]
    # The cure cures.
    live.write_bytes((place / "one.pem").read_bytes())
    async with running_broker(tmp_path / "data", **settings) as running:
        assert await alter(running, {LOCATION: None}) == (0, "")
    live.unlink()
    async with running_broker(tmp_path / "data", **settings) as running:
        assert await shown(running) == fingerprint(place / "one.pem")


async def test_a_reload_takes_the_store_that_the_file_names(
    tmp_path: Path, settings: dict[str, Any], place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fresh(store: Path) -> BrokerConfig:
        given = settings | {"ssl_keystore_location": str(store), "log_retention_ms": "99999"}
        return load(command_line=broker_settings(tmp_path / "data", given))

    async with running_broker(tmp_path / "data", **settings) as running:
        await running.broker.reload(fresh(tmp_path / "missing.pem"))
        assert "the configuration is not reloaded: listener SSL: ssl.keystore" in caplog.text
        assert await shown(running) == fingerprint(place / "one.pem")
        assert running.broker.topics.broker_config.text_of("log.retention.ms") is None
        await running.broker.reload(fresh(place / "other.pem"))
        assert await shown(running) == fingerprint(place / "other.pem")
        assert running.broker.topics.broker_config.text_of("log.retention.ms") == "99999"
        # What was set at run time still wins.
        signed(tmp_path, place / "ca.pem", "third", subject="/CN=other")
        assert await alter(running, {LOCATION: str(tmp_path / "third.pem")}) == (0, "")
        await running.broker.reload(fresh(place / "one.pem"))
        assert await shown(running) == fingerprint(tmp_path / "third.pem")


class LaterClock(SystemClock):
    def wall_ms(self) -> int:
        return super().wall_ms() + 40 * DAY_MS


async def test_an_expired_key_in_no_file_keeps_no_broker_from_starting(
    tmp_path: Path, settings: dict[str, Any], place: Path
) -> None:
    inline = {
        LOCATION: "",
        f"{OWN}ssl.keystore.key": (place / "two.key").read_text(),
        f"{OWN}ssl.keystore.certificate.chain": (place / "two.pem").read_text(),
    }
    async with running_broker(tmp_path / "data", **settings) as running:
        assert await alter(running, inline) == (0, "")
    async with running_broker(tmp_path / "data", clock=LaterClock(), **settings) as running:
        assert await shown(running) == fingerprint(place / "two.pem")
        code, text = await alter(running, inline)
        assert code == ErrorCode.INVALID_REQUEST
        assert "has expired" in text


async def test_requests_reloads_and_changed_files_at_once(
    running: RunningBroker, tmp_path: Path, place: Path
) -> None:
    """The last answer that was given is what is shown, and no send fails meanwhile."""
    live = tmp_path / "live.pem"
    live.write_bytes((place / "one.pem").read_bytes())
    trusting = ssl.create_default_context(cafile=str(place / "ca.pem"))
    is_over = False

    async def reload_all_the_time() -> None:
        while not is_over:
            await running.broker.certificates.reload_all()
            await running.broker.certificates.run()

    async def send_all_the_time() -> int:
        sent = 0
        while not is_over:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=f"127.0.0.1:{running.ready.ports['SSL']}",
                security_protocol="SSL",
                ssl_context=trusting,
            ) as producer:
                await producer.send_and_wait("t", b"x")
                sent += 1
        return sent

    assert await alter(running, {LOCATION: str(live)}) == (0, "")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await (await running.client()).request(CreateTopicsRequest(topics=[topic]), 7)
    others = [asyncio.create_task(reload_all_the_time()), asyncio.create_task(send_all_the_time())]
    for turn in range(25):
        name = ("one", "two", "more")[turn % 3]
        target = live if turn % 2 else tmp_path / f"{name}-{turn}.pem"
        if turn % 5 == 4:
            target.write_text("half a fil")
            code, _ = await alter(running, {LOCATION: str(target)})
            assert code == ErrorCode.INVALID_REQUEST
        if name != "more":  # hosts may be added, not taken away
            target.write_bytes((place / f"{name}.pem").read_bytes())
            assert await alter(running, {LOCATION: str(target)}) == (0, "")
            assert await shown(running) == fingerprint(place / f"{name}.pem"), turn
    is_over = True
    _, sent = await asyncio.gather(*others)
    assert sent


async def test_replacing_all_settings_takes_the_store_out_of_force(
    running: RunningBroker, place: Path
) -> None:
    assert await alter(running, {LOCATION: str(place / "two.pem")}) == (0, "")
    client = await running.client()
    request = AlterConfigsRequest(
        resources=[
            WholeResource(
                resource_type=BROKER,
                resource_name="1",
                configs=[WholeConfig(name="log.retention.ms", value="100000")],
            )
        ]
    )
    (answer,) = (await client.request(request, 2)).responses
    assert answer.error_code == 0
    assert await shown(running) == fingerprint(place / "one.pem")


def test_every_worker_uses_the_store(tmp_path: Path, place: Path) -> None:
    """A request to any worker; also the same path again, whose file has changed."""
    live = tmp_path / "live.pem"
    live.write_bytes((place / "two.pem").read_bytes())
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "metrics.listener": "127.0.0.1:0",
        "ssl.keystore.location": str(place / "one.pem"),
        "workers": "2",
    }
    trusting = ssl.create_default_context(cafile=str(place / "ca.pem"))

    async def set_and_look(port: int, expected: Path) -> None:
        client = await RawClient.connect("127.0.0.1", port, trusting)
        assert await alter_over(client, {LOCATION: str(live)}) == (0, "")
        await client.close()
        async with asyncio.timeout(30):  # the answer does not wait for the other worker
            for one in broker.ports:
                while await shown_at(one) != fingerprint(expected):
                    await asyncio.sleep(0.05)

    with broker_process(tmp_path / "data", **settings) as broker:
        assert len(broker.ports) == 2
        asyncio.run(set_and_look(broker.ports[1], place / "two.pem"))
        live.write_bytes((place / "more.pem").read_bytes())
        asyncio.run(set_and_look(broker.ports[0], place / "more.pem"))
