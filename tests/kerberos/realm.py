"""A Kerberos realm of a test: Debian's KDC on free ports of this machine, files in a directory."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from k5test.realm import K5Realm

from tests.support.kafka_peer import free_ports
from tests.support.toolchains import debian_program

REALM = "EXAMPLE.COM"
SERVICE = f"kafka/localhost@{REALM}"


class Realm:
    """A running KDC, and the keys of those who are known to it."""

    def __init__(self, made: K5Realm) -> None:
        self._made = made
        self.folder = Path(made.tmpdir)
        self.keytab = self.folder / "broker.keytab"
        self.config = Path(made.env["KRB5_CONFIG"])
        self.add(SERVICE, self.keytab)

    def add(self, principal: str, keytab: Path) -> None:
        """Make a principal; its key goes into `keytab`."""
        self._made.addprinc(principal)
        self._made.extract_keytab(principal, str(keytab))

    def ticket_of(self, principal: str) -> Path:
        """A cache with a ticket of a new or known principal."""
        name = principal.replace("/", "-")
        keytab, cache = self.folder / f"{name}.keytab", self.folder / f"{name}.cache"
        if not keytab.exists():
            self.add(principal, keytab)
        self._made.kinit(principal, flags=["-k", "-t", str(keytab), "-c", str(cache)])
        return cache


@contextmanager
def running_realm() -> Iterator[Realm]:
    """A realm with the service `kafka/localhost`; this process and its children are in it."""
    for program, package in (
        ("krb5kdc", "krb5-kdc"), ("kadmin.local", "krb5-admin-server"), ("kinit", "krb5-user"),
    ):  # fmt: skip
        debian_program(program, package)
    (port,) = free_ports(1)
    local = {
        "default_realm": REALM, "dns_lookup_kdc": "false", "rdns": "false",
        "dns_canonicalize_hostname": "false", "udp_preference_limit": "1",
    }  # fmt: skip
    listen = {"kdc_listen": f"127.0.0.1:{port}", "kdc_tcp_listen": f"127.0.0.1:{port}"}
    made = K5Realm(
        REALM,
        portbase=port,
        krb5_conf={"libdefaults": local, "realms": {"$realm": {"kdc": f"127.0.0.1:{port}"}}},
        kdc_conf={"realms": {"$realm": {**listen, "kdc_ports": None, "kdc_tcp_ports": None}}},
        create_user=False,
        create_host=False,
    )
    former = {name: os.environ.get(name) for name in ("KRB5_CONFIG", "KRB5RCACHETYPE")}
    os.environ.update(KRB5_CONFIG=made.env["KRB5_CONFIG"], KRB5RCACHETYPE="none")
    try:
        yield Realm(made)
    finally:
        made.stop()
        shutil.rmtree(made.tmpdir, ignore_errors=True)
        for name, value in former.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
