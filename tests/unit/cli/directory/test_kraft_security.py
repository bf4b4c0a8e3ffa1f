"""Documents of users, rules, quotas and tokens as records of Kafka, and back."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.quotas.book import KIND_QUOTA
from broker.security.acls import KIND_ACL, format_acl
from broker.security.credentials import KIND_SCRAM
from broker.security.tokens import KIND_TOKEN
from cli.directory.kraft_security import Documents, security_for_kafka, security_from_kafka
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.main import run
from cli.security.offline_users import add_user, users
from config import load
from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from protocol.stored.kraft import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntityData,
    UserScramCredentialRecord,
)
from storage.directory.data_dir import DataDir
from storage.disk.files import RealFiles
from storage.kafka.kraft_records import decode, encode

RULE = Acl(
    resource_type=ResourceType.TOPIC,
    name="t",
    pattern=PatternType.PREFIXED,
    principal="User:ann",
    host="*",
    operation=Operation.READ,
    permission=Permission.DENY,
)
DOCUMENTS: Documents = {
    KIND_SCRAM: {
        "SCRAM-SHA-256/ann": {
            "salt": "",
            "stored": "AAEC" * 10 + "AAE=",
            "server": "AwQF" * 10 + "AwQ=",
            "iterations": 4096,
        }
    },
    KIND_ACL: {"a1": dict(format_acl(RULE))},
    KIND_QUOTA: {
        '{"client-id": null, "user": "ann"}': {
            "entity": {"client-id": None, "user": "ann"},
            "values": {"producer_byte_rate": 5.0, "request_percentage": 12.5},
        },
        '{"ip": "10.0.0.7"}': {
            "entity": {"ip": "10.0.0.7"},
            "values": {"connection_creation_rate": 2.0},
        },
    },
    KIND_TOKEN: {
        "id": {
            "owner": ["User", "ann"],
            "requester": ["User", "bob"],
            "renewers": ["carl"],
            "issued_ms": 1,
            "expires_ms": 2,
            "max_ms": 3,
        }
    },
}
MOVED = "carried over: 1 user, 1 rule, 2 quotas, 1 token; "


def host_of(text: str) -> str:
    documents = {KIND_ACL: {"a": dict(format_acl(RULE._replace(host=text)))}}
    (record,) = security_for_kafka(lambda kind: documents.get(kind, {}), [])
    assert isinstance(record, AccessControlEntryRecord)
    return record.host


def test_everything_comes_back_as_it_was() -> None:
    notes: list[str] = []
    records = security_for_kafka(DOCUMENTS.__getitem__, notes)
    assert len(records) == 6
    assert [decode(encode(record)) for record in records] == records
    back = security_from_kafka(records, notes)
    assert list(back[KIND_ACL].values()) == list(DOCUMENTS[KIND_ACL].values())
    assert {**back, KIND_ACL: DOCUMENTS[KIND_ACL]} == DOCUMENTS
    assert [note.startswith(MOVED) for note in notes] == [True, True]


def test_nothing_is_said_about_nothing() -> None:
    notes: list[str] = []
    assert security_for_kafka(lambda _: {}, notes) == []
    assert not any(security_from_kafka([], notes).values())
    assert notes == []


@pytest.mark.parametrize(
    ("text", "java"),
    [
        ("*", "*"),
        ("10.0.0.7", "10.0.0.7"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::a0", "2001:db8:0:0:0:0:0:a0"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::a%eth0", "fe80:0:0:0:0:0:0:a%eth0"),
        ("never.example", "never.example"),
    ],
)
def test_hosts_of_rules_are_written_as_java_compares_them(text: str, java: str) -> None:
    assert host_of(text) == java


def test_user_whom_kafka_cannot_let_in_is_noted() -> None:
    documents = {KIND_SCRAM: {"SCRAM-SHA-256/jürgen": DOCUMENTS[KIND_SCRAM]["SCRAM-SHA-256/ann"]}}
    notes: list[str] = []
    assert len(security_for_kafka(lambda kind: documents.get(kind, {}), notes)) == 1
    assert "'jürgen' cannot log in to Kafka" in notes[0]


def test_unreadable_document_refuses_the_export() -> None:
    with pytest.raises(CommandFailed, match=r"not an access rule.*restore metadata\.journal"):
        security_for_kafka(lambda kind: {"a": {}} if kind == KIND_ACL else {}, [])


def test_rule_that_is_none_here_refuses_the_import() -> None:
    record = AccessControlEntryRecord(
        resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*",
        operation=99, permission_type=2,
    )  # fmt: skip
    with pytest.raises(CommandFailed, match=r"'operation': 99.*remove it in Kafka"):
        security_from_kafka([record], [])


def test_what_else_cannot_come_along_is_noted() -> None:
    credential = UserScramCredentialRecord(
        name="ann", mechanism=9, salt=b"salt", stored_key=b"k3y", server_key=b"k3y", iterations=1
    )
    limit = ClientQuotaRecord(
        entity=[QuotaEntityData(entity_type="user")], key="request_percentage", value=math.nan
    )
    token = DelegationTokenRecord(owner="nobody", requester="User:b", token_id="x")
    notes: list[str] = []
    assert not any(security_from_kafka([credential, limit, token], notes).values())
    assert [note.partition(" is left out: ")[0] for note in notes] == [
        "user 'ann' with mechanism 9",
        "request_percentage=nan of default user",
        "token 'x'",
    ]
    assert "k3y" not in "".join(notes)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""},
        {"name": "\ud800"},
        {"iterations": 0},
        {"iterations": 2**31 - 1},
        {"stored_key": b"k"},
        {"server_key": bytes(64)},
    ],
)
def test_credential_that_is_left_out_is_in_no_document(changed: dict[str, Any]) -> None:
    credential = UserScramCredentialRecord(
        name="ann", mechanism=1, salt=b"", stored_key=bytes(32), server_key=bytes(32),
        iterations=4096,
    )  # fmt: skip
    assert security_from_kafka([credential], [])[KIND_SCRAM]
    notes: list[str] = []
    assert not any(security_from_kafka([replace(credential, **changed)], notes).values())
    assert [" is left out: " in note for note in notes] == [True]


def test_token_renews_for_users_alone() -> None:
    token = DelegationTokenRecord(owner="User:a", requester="User:b", token_id="x")
    assert security_from_kafka([replace(token, renewers=["User:z"])], [])[KIND_TOKEN]
    notes: list[str] = []
    assert not any(security_from_kafka([replace(token, renewers=["Group:z"])], notes).values())
    assert notes == ["token 'x' is left out: its renewers Group:z are not all users"]


def test_directory_takes_its_users_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, kafka, back = tmp_path / "tide", tmp_path / "kafka", tmp_path / "back"
    config = load(command_line={"log.dirs": str(directory)})
    DataDir.open(str(directory), files=RealFiles(), broker_config=config, now_ms=1).close(1)
    add_user(str(directory), "ann", "secret", "SCRAM-SHA-512", 8192)
    assert run(["export-kraft", str(directory), str(kafka), "--json"]) == ExitCode.OK
    assert any(
        "carried over: 1 user;" in note for note in json.loads(capsys.readouterr().out)["notes"]
    )
    (snapshot,) = (kafka / "__cluster_metadata-0").iterdir()
    assert snapshot.stat().st_mode & 0o777 == 0o600
    assert run(["import", str(kafka), str(back), "--json"]) == ExitCode.OK
    assert users(str(back)) == {"ann": [("SCRAM-SHA-512", 8192)]}
    assert (back / "metadata.journal").stat().st_mode & 0o777 == 0o600
