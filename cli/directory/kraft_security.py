"""Users, rules, quotas and tokens of the journal as records of Kafka's metadata log, and back.

| document | record of Kafka                | what changes on the way             |
|----------|--------------------------------|-------------------------------------|
| `scram`  | UserScramCredentialRecord (11) | nothing: the same salt and keys     |
| `acl`    | AccessControlEntryRecord (18)  | to Kafka: an address in Java's form |
| `quota`  | ClientQuotaRecord (14)         | to Kafka: one record for each limit |
| `token`  | DelegationTokenRecord (10)     | nothing: no secret is in either     |

Invariant: no rule is dropped. One that cannot be read refuses the move, since without a DENY a user
could do more. Others that cannot come along are notes.
"""

import hashlib
import ipaddress
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from broker.principal import USER_TYPE, parse_principal
from broker.quotas.book import (
    KIND_QUOTA,
    Change,
    Entity,
    QuotaBook,
    check_changes,
    checked_entity,
    document,
    document_key,
    format_entity,
)
from broker.security import credentials
from broker.security.acls import KIND_ACL, format_acl, parse_acl
from broker.security.credentials import KIND_SCRAM, format_credential, parse_credential
from broker.security.scram import ScramCredential, ScramMechanism
from broker.security.tokens import KIND_TOKEN, Token, format_token, parse_token
from cli.failures import CommandFailed
from protocol.acl import Acl
from protocol.stored.kraft import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntityData,
    SecurityRecord,
    UserScramCredentialRecord,
)
from storage.directory.metadata import Json

Documents = dict[str, dict[str, Json]]
"""Documents of the journal, by kind and key."""

_NAMES = {KIND_SCRAM: "user", KIND_ACL: "rule", KIND_QUOTA: "quota", KIND_TOKEN: "token"}


# --- to Kafka -----------------------------------------------------------------------------------


def security_for_kafka(
    documents_of: Callable[[str], Mapping[str, Json]], notes: list[str]
) -> list[SecurityRecord]:
    """The records that stand for the documents of a directory.

    Raises:
        CommandFailed: a document cannot be read.
    """
    documents = {kind: documents_of(kind) for kind in _NAMES}
    try:
        records = [
            *_users(documents[KIND_SCRAM], notes),
            *_rules(documents[KIND_ACL]),
            *_limits(QuotaBook(documents[KIND_QUOTA])),
            *_tokens(documents[KIND_TOKEN]),
        ]
    except ValueError as error:
        raise CommandFailed(f"{error}; restore metadata.journal from a copy") from None
    _note_counts(documents, notes)
    return records


def _users(documents: Mapping[str, Json], notes: list[str]) -> list[SecurityRecord]:
    records: list[SecurityRecord] = []
    for key, read in documents.items():
        mechanism, name, credential = parse_credential(key, read)
        if not name.isascii():
            notes.append(f"user {name!r} cannot log in to Kafka: its SCRAM takes ASCII names alone")
        records.append(
            UserScramCredentialRecord(
                name=name,
                mechanism=mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )
        )
    return records


def _rules(documents: Mapping[str, Json]) -> list[SecurityRecord]:
    return [
        AccessControlEntryRecord(
            id=hashlib.blake2b(key.encode(), digest_size=16).digest(),
            resource_type=acl.resource_type,
            resource_name=acl.name,
            pattern_type=acl.pattern,
            principal=acl.principal,
            host=_host_for_kafka(acl.host),
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for key, acl in ((key, parse_acl(read)) for key, read in documents.items())
    ]


def _host_for_kafka(text: str) -> str:
    """An address as Java writes it: Kafka compares the texts, so no other form would match."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    plain, mark, scope = text.partition("%")
    groups = ipaddress.IPv6Address(plain).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + mark + scope


def _limits(quotas: QuotaBook) -> list[SecurityRecord]:
    return [
        ClientQuotaRecord(
            entity=[QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            key=key,
            value=bound,
        )
        for entity, limits in quotas
        for key, bound in limits.items()
    ]


def _tokens(documents: Mapping[str, Json]) -> list[SecurityRecord]:
    return [
        DelegationTokenRecord(
            owner=str(token.owner),
            requester=str(token.requester),
            renewers=[str(renewer) for renewer in token.renewers],
            issue_timestamp=token.issued_ms,
            max_timestamp=token.max_ms,
            expiration_timestamp=token.expires_ms,
            token_id=token.id,
        )
        for token in (parse_token(token_id, read) for token_id, read in documents.items())
    ]


# --- from Kafka ---------------------------------------------------------------------------------


def security_from_kafka(records: Iterable[SecurityRecord], notes: list[str]) -> Documents:
    """The documents that stand for records; what cannot come along is noted.

    Raises:
        CommandFailed: a rule cannot be read.
    """
    documents: Documents = {kind: {} for kind in _NAMES}
    limits: dict[Entity, dict[str, float]] = defaultdict(dict)
    for record in records:
        try:
            match record:
                case UserScramCredentialRecord():
                    _take_user(record, documents[KIND_SCRAM])
                case AccessControlEntryRecord():
                    documents[KIND_ACL][record.id.hex()] = _rule(record)
                case ClientQuotaRecord():
                    entity = checked_entity((e.entity_type, e.entity_name) for e in record.entity)
                    check_changes(entity, [Change(record.key, record.value)])
                    limits[entity][record.key] = record.value
                case DelegationTokenRecord():
                    documents[KIND_TOKEN][record.token_id] = _token(record)
        except ValueError as error:
            notes.append(f"{_words(record)} is left out: {error}")
    documents[KIND_QUOTA] = {
        document_key(entity): document(entity, values) for entity, values in limits.items()
    }
    _note_counts(documents, notes)
    return documents


def _take_user(record: UserScramCredentialRecord, documents: dict[str, Json]) -> None:
    mechanism = ScramMechanism(record.mechanism)
    credential = ScramCredential(
        salt=record.salt,
        stored_key=record.stored_key,
        server_key=record.server_key,
        iterations=record.iterations,
    )
    key, document = credentials.document_key(mechanism, record.name), format_credential(credential)
    parse_credential(key, document)
    if problem := credentials.problem_with(mechanism, credential):
        raise ValueError(problem)
    documents[key] = document


def _rule(record: AccessControlEntryRecord) -> Json:
    acl = Acl(
        resource_type=record.resource_type,
        name=record.resource_name,
        pattern=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission=record.permission_type,
    )
    read = format_acl(acl)
    try:
        parse_acl(read)
    except ValueError as error:
        raise CommandFailed(
            f"{error}; without it users could do more: remove it in Kafka (kafka-acls --remove), "
            "then import again"
        ) from None
    return read


def _token(record: DelegationTokenRecord) -> Json:
    renewers = tuple(parse_principal(renewer) for renewer in record.renewers)
    if any(renewer.type != USER_TYPE for renewer in renewers):
        raise ValueError(f"its renewers {', '.join(record.renewers)} are not all users")
    token = Token(
        id=record.token_id,
        owner=parse_principal(record.owner),
        requester=parse_principal(record.requester),
        renewers=renewers,
        issued_ms=record.issue_timestamp,
        expires_ms=record.expiration_timestamp,
        max_ms=record.max_timestamp,
    )
    return format_token(token)


def _words(record: SecurityRecord) -> str:
    """What a record is about, without keys."""
    match record:
        case UserScramCredentialRecord():
            return f"user {record.name!r} with mechanism {record.mechanism}"
        case ClientQuotaRecord():
            entity = tuple((part.entity_type, part.entity_name) for part in record.entity)
            return f"{record.key}={record.value} of {format_entity(entity)}"
        case DelegationTokenRecord():
            return f"token {record.token_id!r}"
    return "a rule"


def _note_counts(documents: Mapping[str, Mapping[str, Json]], notes: list[str]) -> None:
    counts = [(len(documents[kind]), name) for kind, name in _NAMES.items() if documents[kind]]
    if counts:
        moved = ", ".join(f"{count} {name}{'s' * (count > 1)}" for count, name in counts)
        notes.append(
            f"carried over: {moved}; they take effect with the settings of listeners, "
            "authorizer.class.name, super.users and delegation.token.secret.key"
        )
