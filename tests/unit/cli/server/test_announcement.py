"""The ready line: an address that clients can use, and where the broker listens if elsewhere."""

import json
import socket

import pytest

from broker.net.addresses import ReadyInfo, address_for_clients, addresses_for_clients
from cli.server import announcement
from config import BrokerConfig, load

INSIDE = "listeners=INSIDE://0.0.0.0:0,OUTSIDE://127.0.0.1:0"
MAP = "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"


def settings(*pairs: str) -> BrokerConfig:
    return load(
        command_line=dict(pair.split("=", 1) for pair in (*pairs, "insecure.allow=true")),
    )


def ready(config: BrokerConfig, port: int = 9092) -> ReadyInfo:
    ports = {one.name: port + number for number, one in enumerate(config.listeners)}
    addresses = {}
    for one in config.listeners:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            taken = bound.getsockname()[1]
            assert addresses_for_clients([(one, bound)], config).keys() == {one.name}
            host, told = address_for_clients(one, bound, config)
        own = ports[one.name] if told == taken else told
        addresses[one.name] = f"[{host}]:{own}" if ":" in host else f"{host}:{own}"
    return ReadyInfo(
        host=config.listeners[0].host, port=port, metrics_port=9464, node_id=1, cluster_id="c",
        data_dir="data", ports=ports, addresses=addresses,
    )  # fmt: skip


def shown(*pairs: str) -> list[str]:
    config = settings(*pairs)
    return list(announcement.lines(ready(config), config))


NAME = socket.gethostname()


@pytest.mark.parametrize(
    ("pairs", "lines"),
    [
        (
            ("listeners=PLAINTEXT://127.0.0.1:0",),
            ["Tidelog is ready at 127.0.0.1:9092 (data in data)"],
        ),
        (("listeners=PLAINTEXT://[::1]:0",), ["Tidelog is ready at [::1]:9092 (data in data)"]),
        (
            ("listeners=PLAINTEXT://0.0.0.0:0",),
            [f"Tidelog is ready at {NAME}:9092 (listens on 0.0.0.0:9092, data in data)"],
        ),
        (
            ("listeners=PLAINTEXT://:0",),
            [f"Tidelog is ready at {NAME}:9092 (listens on *:9092, data in data)"],
        ),
        (
            ("listeners=PLAINTEXT://0.0.0.0:0", "advertised.listeners=PLAINTEXT://localhost:19092"),
            ["Tidelog is ready at localhost:19092 (listens on 0.0.0.0:9092, data in data)"],
        ),
        (
            (INSIDE, MAP, "advertised.listeners=INSIDE://broker:19092,OUTSIDE://127.0.0.1:0"),
            [
                "Tidelog is ready at broker:19092 (listens on 0.0.0.0:9092, data in data)",
                "  OUTSIDE: 127.0.0.1:9093",
            ],
        ),
    ],
)
def test_the_line_names_what_clients_are_told(pairs: tuple[str, ...], lines: list[str]) -> None:
    assert shown(*pairs) == lines


@pytest.mark.parametrize(
    ("listener", "port", "option"),
    [
        ("PLAINTEXT://127.0.0.1:0", 9092, ""),
        ("PLAINTEXT://0.0.0.0:0", 9092, ""),
        ("PLAINTEXT://0.0.0.0:0", 9093, " -b localhost:9093"),
        ("PLAINTEXT://192.0.2.1:0", 9092, " -b 192.0.2.1:9092"),
        ("PLAINTEXT://[::1]:0", 9092, " -b [::1]:9092"),
    ],
)
def test_the_hints_have_an_address_of_this_machine(listener: str, port: int, option: str) -> None:
    config = settings(f"listeners={listener}")
    assert announcement.bootstrap(ready(config, port), config) == option


def test_a_program_reads_what_clients_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    config = settings("listeners=PLAINTEXT://0.0.0.0:0")
    announcement.show(ready(config), config, (), as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert facts["host"] == "0.0.0.0"
    assert facts["addresses"] == {"PLAINTEXT": f"{NAME}:9092"}
