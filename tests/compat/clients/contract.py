"""The command line and the records that all Python client programs share (see README.md)."""

# mypy: ignore-errors
# It runs under interpreters that mypy no longer knows.

from __future__ import annotations

import json
import logging
import os
import ssl
import sys
import time

DEFAULT_TIMEOUT_S = 40


class Arguments(dict):
    """The `key=value` pairs of the command line, with a few of them typed."""

    @property
    def count(self) -> int:
        return int(self["count"])

    @property
    def partitions(self) -> int:
        return int(self.get("partitions", "1"))

    @property
    def timestamps(self) -> list:
        return [int(text) for text in self["timestamps"].split(",")]

    @property
    def codec(self) -> str:
        return str(self.get("codec", "none"))

    @property
    def timeout_s(self) -> float:
        return float(self.get("timeout", DEFAULT_TIMEOUT_S))

    @property
    def librdkafka_security(self) -> dict:
        """How librdkafka logs in, nothing where `security` is not given."""
        names = {
            "security.protocol": "security",
            "sasl.mechanisms": "mechanism",
            "sasl.username": "user",
            "sasl.password": "password",
            "ssl.ca.location": "ca",
            "ssl.certificate.location": "cert",
            "ssl.key.location": "cert",
            "sasl.oauthbearer.method": "method",
            "sasl.oauthbearer.client.id": "user",
            "sasl.oauthbearer.client.secret": "password",
            "sasl.oauthbearer.token.endpoint.url": "token_url",
        }
        if "token_url" not in self:
            names = {name: key for name, key in names.items() if ".oauthbearer." not in name}
        settings = {name: self[key] for name, key in names.items() if key in self}
        if "principal" in self:
            settings["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
            settings["sasl.oauthbearer.config"] = "principal=" + self["principal"]
        return settings

    @property
    def librdkafka_token(self) -> dict:
        """The function that gives librdkafka's programs their token, nothing without `token`."""
        if "token" not in self:
            return {}
        return {"oauth_cb": lambda _: (self.token(), time.time() + 300)}

    def token(self) -> str:
        """The token for OAUTHBEARER, which the file `token` has."""
        with open(self["token"]) as file:
            return file.read()

    @property
    def python_security(self) -> dict:
        """How kafka-python and aiokafka log in."""
        names = {
            "security_protocol": "security",
            "sasl_mechanism": "mechanism",
            "sasl_plain_username": "user",
            "sasl_plain_password": "password",
        }
        options = {name: self[key] for name, key in names.items() if key in self}
        if "ca" in self:
            options["ssl_context"] = ssl.create_default_context(cafile=self["ca"])
            if "cert" in self:
                options["ssl_context"].load_cert_chain(self["cert"])
        return options

    def record(self, i: int) -> tuple:
        """(partition, timestamp_ms, key, value, headers) of record `i`."""
        timestamp = int(self["base"]) + (i * 37 % self.count) * 1000
        value = "value-{}-{}".format(i, "x" * 64)
        headers = [("n", str(i).encode())]
        return i % self.partitions, timestamp, b"key-%d" % i, value.encode(), headers


def emit(**document: object) -> None:
    """Prints one JSON line at once."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def text(data: bytes | None) -> str | None:
    """Keys and values as JSON can carry them."""
    return None if data is None else data.decode()


def wants_more(arguments: Arguments, seen: int, started: float) -> bool:
    """Whether a `consume` or `member` run should poll again.

    Raises:
        SystemExit: the time is over before `count` records came.
    """
    overdue = time.monotonic() - started > arguments.timeout_s
    if "stop" in arguments:
        return not (os.path.exists(arguments["stop"]) or overdue)
    if seen < arguments.count and overdue:
        sys.exit(f"only {seen} of {arguments.count} records came in time")
    return seen < arguments.count


def main(scenarios: dict) -> None:
    """Runs the scenario that the command line names; what the library logs goes to stderr."""
    logging.basicConfig(level=logging.WARNING)
    name = sys.argv[1]
    arguments = Arguments(pair.split("=", 1) for pair in sys.argv[2:])
    scenarios[name](arguments)
