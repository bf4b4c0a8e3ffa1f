"""Users and rules after a power cut at any moment: as before the change or as after it."""

import base64
from collections.abc import Callable

import pytest

from broker.metrics import Metrics
from broker.security.credentials import Deletion, Upsertion
from broker.security.scram import ScramMechanism, salted
from broker.security.service import Security
from config import load
from protocol.acl import Acl, PatternType, Permission, ResourceType
from protocol.acl import Operation as Right
from storage.directory.metadata import Json
from storage.directory.metadata_journal import MetadataJournal
from tests.support.clock import FrozenClock
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Operation, SimulatedDisk

SHA_512 = ScramMechanism.SCRAM_SHA_512
SALT = b"0123456789abcdef"
SEEDS = 3

State = tuple[object, ...]


class Documents:
    """What `Security` needs of a data directory."""

    def __init__(self, disk: SimulatedDisk) -> None:
        if not disk.exists("/d"):
            disk.make_directory("/d")
            disk.sync_directory("/")
        self.journal = MetadataJournal("/d", disk)
        self.may_change = True
        self.documents = self.journal.documents

    def put_documents(
        self, kind: str, documents: dict[str, Json], *, erase_former: bool = False
    ) -> None:
        self.journal.put_all(kind, documents, erase_former=erase_former)


def opened(disk: SimulatedDisk) -> Security:
    config = load(
        command_line={
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        }
    )
    return Security(config, Documents(disk), clock=FrozenClock(), metrics=Metrics())  # type: ignore[arg-type]


def state(security: Security) -> State:
    assert security.access is not None
    users = tuple(
        security.credentials.of(SHA_512, name) if security.credentials.has_user(name) else None
        for name in ("ann", "bob", "eve")
    )
    return users, frozenset(acl for acl in (*BEFORE, *AFTER) if acl in security.access)


def upsertion(name: str, password: str) -> Upsertion:
    return Upsertion(
        name=name,
        mechanism=SHA_512,
        iterations=4096,
        salt=SALT,
        salted_password=salted(SHA_512, password, SALT, 4096),
    )


def rule(name: str) -> Acl:
    return Acl(
        ResourceType.TOPIC, name, PatternType.LITERAL, "User:ann", "*", Right.READ, Permission.ALLOW
    )


BEFORE = tuple(rule(f"old-{number}") for number in range(3))
AFTER = tuple(rule(f"new-{number}") for number in range(40))
FORMER = [upsertion("ann", "former"), upsertion("bob", "other")]
CHANGED = [upsertion("ann", "fresh"), upsertion("eve", "fresh")]


def change_users(security: Security) -> None:
    # One request; bob goes, ann has another password, eve is new.
    security.alter_users([Deletion(name="bob", mechanism=SHA_512)], CHANGED)


def add_rules(security: Security) -> None:
    security.add_acls(AFTER)


def remove_rules(security: Security) -> None:
    security.remove_acls(BEFORE)


@pytest.mark.parametrize("change", [change_users, add_rules, remove_rules])
def test_a_power_cut_leaves_all_of_a_change_or_none(change: Callable[[Security], None]) -> None:
    disk = SimulatedDisk()
    security = opened(disk)
    security.alter_users([], FORMER)
    security.add_acls(BEFORE)
    before = state(security)
    images: list[SimulatedDisk] = []

    def remember(_: Operation, __: str) -> None:
        images.extend(
            disk.power_cut(seed, survival) for survival in Survival for seed in range(SEEDS)
        )

    disk.before_operation = remember
    change(security)
    disk.before_operation = None
    after = state(security)
    assert after != before
    assert images
    found = [state(opened(image)) for image in images]
    assert set(found) <= {before, after}
    assert before in found
    for survival in Survival:
        assert state(opened(disk.power_cut(0, survival))) == after, "acknowledged, so it stays"


def test_no_former_credential_stays_in_the_journal() -> None:
    disk = SimulatedDisk()
    security = opened(disk)
    security.alter_users([], FORMER)
    former = disk.read_all("/d/metadata.journal")
    key = security.credentials.of(SHA_512, "ann").stored_key
    security.alter_users([], CHANGED)
    assert security.credentials.of(SHA_512, "ann").stored_key != key
    assert base64.b64encode(key) in former
    assert base64.b64encode(key) not in disk.read_all("/d/metadata.journal")
