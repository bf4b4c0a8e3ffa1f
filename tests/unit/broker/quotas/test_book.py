"""Quotas as data: which one applies, what may be set, what a filter selects."""

import pytest

from broker.quotas.book import (
    Change,
    Component,
    Entity,
    InvalidQuota,
    Limit,
    QuotaBook,
    UnknownEntityType,
    changed,
    check_changes,
    checked_entity,
    document,
    document_key,
    format_entity,
)
from storage.directory.metadata import Json

KEY = "producer_byte_rate"

LEVELS: list[tuple[dict[str, str | None], Limit]] = [
    ({"user": "ann", "client-id": "app"}, Limit(1.0, "ann", "app")),
    ({"user": "ann", "client-id": None}, Limit(2.0, "ann", "app")),
    ({"user": "ann"}, Limit(3.0, "ann", None)),
    ({"user": None, "client-id": "app"}, Limit(4.0, "ann", "app")),
    ({"user": None, "client-id": None}, Limit(5.0, "ann", "app")),
    ({"user": None}, Limit(6.0, "ann", None)),
    ({"client-id": "app"}, Limit(7.0, None, "app")),
    ({"client-id": None}, Limit(8.0, None, "app")),
]


ALL_LEVELS = [(names, {KEY: limit.bound}) for names, limit in LEVELS]
USER_AND_CLIENT = checked_entity([("user", "ann"), ("client-id", "app")])


def book(*entities: tuple[dict[str, str | None], dict[str, float]]) -> QuotaBook:
    made = QuotaBook({})
    for names, values in entities:
        made.put(checked_entity(names.items()), values)
    return made


def test_the_first_level_with_a_limit_for_the_key_counts() -> None:
    for first, (_, expected) in enumerate(LEVELS):
        own = book(*ALL_LEVELS[first:])
        # A limit for another key does not hide the levels after it.
        own.put(USER_AND_CLIENT, {"consumer_byte_rate": 9.0, **own.of(USER_AND_CLIENT)})
        assert own.limit(KEY, "ann", "app") == expected


@pytest.mark.parametrize("names", [names for names, _ in LEVELS])
@pytest.mark.parametrize("key", ["producer_byte_rate", "consumer_byte_rate", "request_percentage"])
def test_requests_of_a_user_may_be_limited_at_every_level(
    names: dict[str, str | None], key: str
) -> None:
    own = book((names, {key: 1.0}))
    assert own.may_limit_requests("ann")
    is_for_others = own.limit(key, "eve", "app") is not None
    assert own.may_limit_requests("eve") is is_for_others


def test_quotas_of_partitions_and_connections_limit_no_requests() -> None:
    own = book(
        ({"user": "ann"}, {"controller_mutation_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 1.0}),
    )
    assert not own.may_limit_requests("ann")


def test_other_users_and_clients_have_no_limit() -> None:
    own = book(({"user": "ann", "client-id": "app"}, {KEY: 1.0}), ({"user": "bob"}, {KEY: 2.0}))
    assert own.limit(KEY, "ann", "other") is None
    assert own.limit(KEY, "eve", "app") is None
    assert own.limit("consumer_byte_rate", "bob", "app") is None


def test_an_address_without_a_limit_has_the_default_one() -> None:
    own = book(
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 3.0}),
        ({"ip": None}, {"connection_creation_rate": 5.0}),
    )
    assert own.ip_limit("127.0.0.1") == 3.0
    assert own.ip_limit("127.0.0.2") == 5.0
    assert book().ip_limit("127.0.0.1") is None


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ([], "Invalid empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("client-id", "")], "Empty client-id not supported"),
        ([("host", "x")], "Unhandled client quota entity type: host"),
        ([("ip", "127.0.0.1"), ("user", "ann")], "combination"),
        ([("ip", "127.0.0.0/8")], "not a valid IP address"),
        ([("ip", "localhost")], "not a valid IP address"),
    ],
)
def test_refused_entities(parts: list[tuple[str, str | None]], complaint: str) -> None:
    with pytest.raises(InvalidQuota, match=complaint):
        checked_entity(parts)


USER = checked_entity([("user", "ann")])
ADDRESS = checked_entity([("ip", None)])


@pytest.mark.parametrize(
    ("entity", "changes", "complaint"),
    [
        (USER, [("foo", 1.0)], "Invalid configuration key foo"),
        (USER, [("connection_creation_rate", 1.0)], "Invalid configuration key"),
        (ADDRESS, [(KEY, 1.0)], "Invalid configuration key"),
        (USER, [(KEY, 0.0)], "must be greater than 0"),
        (USER, [(KEY, -1.0)], "must be greater than 0"),
        (USER, [(KEY, 1.5)], "cannot be a fractional value"),
        (ADDRESS, [("connection_creation_rate", 2.5)], "cannot be a fractional value"),
        (ADDRESS, [("connection_creation_rate", 2.0**31)], "too large for an INT"),
        (USER, [(KEY, 2.0**64)], "too large for a LONG"),
        (USER, [("request_percentage", float("nan"))], "finite"),
        (USER, [("request_percentage", float("inf"))], "finite"),
        (USER, [(KEY, 1.0), (KEY, None)], "Duplicate quota key"),
    ],
)
def test_refused_changes(
    entity: Entity, changes: list[tuple[str, float | None]], complaint: str
) -> None:
    with pytest.raises(InvalidQuota, match=complaint):
        check_changes(entity, [Change(*change) for change in changes])


def test_accepted_changes() -> None:
    check_changes(
        USER,
        [
            Change(KEY, 1.0),
            Change("request_percentage", 0.5),
            Change("controller_mutation_rate", 0.1),
            Change("foo", None),  # Kafka removes unknown keys without a word
        ],
    )
    assert changed({KEY: 1.0, "x": 2.0}, [Change("x", None), Change(KEY, 3.0)]) == {KEY: 3.0}


def test_quotas_survive_their_documents() -> None:
    entity = checked_entity([("user", "ann"), ("client-id", None)])
    kept: dict[str, Json] = {document_key(entity): document(entity, {KEY: 5.0})}
    read = QuotaBook(kept)
    assert list(read) == [(entity, {KEY: 5.0})]
    assert document(entity, {}) is None
    assert format_entity(entity) == "default client-id, user 'ann'"
    broken: list[Json] = [None, {}, {"entity": {}, "values": {}}, {"entity": [], "values": {}}]
    for value in broken:
        with pytest.raises(ValueError):
            QuotaBook({"k": value})


def test_an_address_counts_in_every_form_of_it() -> None:
    rate = {"connection_creation_rate": 1.0}
    for written, arrives in (
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("::FFFF:102:304", "1.2.3.4"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("FE80::1%eth0", "fe80::1"),
        ("::1%lo", "::1"),
        ("::ffff:1.2.3.4%eth0", "1.2.3.4"),
    ):
        own = book(({"ip": written}, rate))
        assert own.ip_limit(arrives) == 1.0
        asked = own.select([Component("ip", 0, written)], strict=True)
        assert asked == [((("ip", arrives),), rate)]
    assert own.select([Component("ip", 0, "no address")], strict=True) == []


def test_a_quota_kept_under_another_form_of_its_address_can_be_removed() -> None:
    rate = {"connection_creation_rate": 1.0}
    former = '{"ip": "::ffff:102:304"}'
    entity = checked_entity([("ip", "1.2.3.4")])
    read = QuotaBook({former: {"entity": {"ip": "::ffff:102:304"}, "values": dict(rate)}})
    assert list(read) == [(entity, rate)]
    assert read.documents_of(entity, {}) == {former: None, document_key(entity): None}
    assert QuotaBook({}).documents_of(entity, {}) == {document_key(entity): None}


ALL = book(*ALL_LEVELS, ({"ip": "127.0.0.1"}, {"connection_creation_rate": 1.0}))


@pytest.mark.parametrize(
    ("components", "strict", "count"),
    [
        ([], False, 9),
        ([], True, 0),
        ([("user", 0, "ann")], False, 3),
        ([("user", 0, "ann")], True, 1),
        ([("user", 1, None)], False, 3),
        ([("user", 2, None)], True, 2),
        ([("user", 2, None), ("client-id", 2, None)], False, 4),
        ([("user", 2, None), ("client-id", 1, None)], True, 2),
        ([("client-id", 0, "app")], True, 1),
        ([("ip", 2, None)], True, 1),
        ([("ip", 1, None)], True, 0),
        ([("user", 0, "eve")], False, 0),
    ],
)
def test_filters(components: list[tuple[str, int, str | None]], strict: bool, count: int) -> None:
    assert len(ALL.select([Component(*part) for part in components], strict=strict)) == count


def test_an_unknown_type_is_no_invalid_filter() -> None:
    with pytest.raises(UnknownEntityType):
        ALL.select([Component("host", 0, "x")], strict=False)
