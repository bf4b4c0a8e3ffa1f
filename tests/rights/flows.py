"""Rights that are given and taken while a client is in the middle of something.

A flow is a conversation of users with one broker: sessions of fetches, groups, transactions,
logins. Between two requests rules are made and deleted. What a user is answered is kept as one line
for each step; the lines of both brokers have to be the same. `recorded_flows.json` has those of
Apache Kafka.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from protocol.acl import CLUSTER_NAME, Operation, ResourceType
from protocol.api.heartbeat import HeartbeatRequest
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.sasl_handshake import SaslHandshakeRequest
from protocol.api_keys import ApiKey
from tests.requests_differential.conversation import CLOSED, Connection, error_codes
from tests.requests_differential.good import ASSIGNMENT, SUBSCRIPTION, Body, batch
from tests.rights.brokers import SUPER_USER, LoggedIn, Stage, kafka, tidelog, token
from tests.rights.scenario import (
    SETTLED_S,
    Scenario,
    errors,
    fetched,
    name,
    produced,
    wanted,
)
from tests.support.broker import ConnectionClosed, RawClient

RECORDED_FLOWS: Final = Path(__file__).parent / "recorded_flows.json"
"""What users are answered by Apache Kafka, by flow."""

USERS: Final = ("alice", "bob", SUPER_USER)
SETTINGS: Final = {
    "connections.max.reauth.ms": "3600000",
    "auto.create.topics.enable": "true",
}
_SESSION_MS: Final = 60_000
_PLAIN: Final = SaslHandshakeRequest(mechanism="PLAIN")
_SCRAM: Final = SaslHandshakeRequest(mechanism="SCRAM-SHA-512")
_GSSAPI: Final = SaslHandshakeRequest(mechanism="GSSAPI")
_K = ApiKey
_READ, _WRITE, _DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
_TOPIC, _GROUP, _ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


# -- fetches ---------------------------------------------------------------------------------------


def _fetch_session(version: int) -> Callable[[Scenario], Awaitable[None]]:
    async def flow(scenario: Scenario) -> None:
        first, second = await scenario.topics("first", "second")
        may_read = [(_TOPIC, first, _READ), (_TOPIC, second, _READ)]
        await scenario.allow("bob", *may_read)
        bob = scenario.user("bob")
        session: Body = {"session_id": 0, "session_epoch": 0}

        async def poll(step: str, topics: dict[str, int], wait_ms: int = 100) -> None:
            body = {**wanted(topics, scenario.ids, wait_ms), **session}
            answer = await scenario.ask(bob, _K.FETCH, version, body)
            scenario.note(step, fetched(scenario, answer))
            if not isinstance(answer, str) and not answer.error_code:
                session.update(
                    session_id=answer.session_id, session_epoch=session["session_epoch"] + 1
                )

        await poll("opened", {first: 0, second: 0})
        await poll("at the ends", {first: 1, second: 1})
        await scenario.revoke("bob", may_read[0])
        await poll("one revoked", {})
        await poll("still revoked", {})
        await scenario.append(second)
        await poll("a record in the other", {})
        await poll("read on", {second: 2})
        await scenario.allow("bob", may_read[0])
        await scenario.append(first)
        await poll("allowed again", {})
        await poll("read on in both", {first: 2})
        await scenario.revoke("bob", *may_read)
        await poll("both revoked", {}, wait_ms=5_000)
        await scenario.allow("bob", *may_read)
        await poll("both allowed", {})
        waiting = asyncio.create_task(poll("revoked while it waits", {}, wait_ms=3_000))
        await asyncio.sleep(0.5)
        await scenario.revoke("bob", may_read[0])
        await scenario.append(first)
        await waiting
        await poll("after that", {first: 3})

    return flow


async def _waiting_fetch(scenario: Scenario) -> None:
    (topic,) = await scenario.topics("topic")
    await scenario.allow("bob", (_TOPIC, topic, _READ))
    bob = scenario.user("bob")
    body = wanted({topic: 1}, scenario.ids, wait_ms=3_000)
    waiting = asyncio.create_task(scenario.ask(bob, _K.FETCH, 12, body))
    await asyncio.sleep(0.5)
    await scenario.deny("bob", (_TOPIC, topic, _READ))
    await scenario.append(topic)
    scenario.note("denied while it waits", fetched(scenario, await waiting))
    answer = await scenario.ask(bob, _K.FETCH, 12, body)
    scenario.note("the next", fetched(scenario, answer))


# -- share groups ----------------------------------------------------------------------------------


async def _share_offsets(scenario: Scenario) -> None:
    """What the ids in answers say about topics that a user may not read."""
    (topic,) = await scenario.topics("topic")
    group = await scenario.group()
    missing = scenario.own("missing")
    await scenario.allow("bob", (_GROUP, group, _READ), (_GROUP, group, Operation.DELETE))
    await scenario.allow("bob", (_GROUP, group, _DESCRIBE))
    bob = scenario.user("bob")
    rows = [{"partition_index": 0, "start_offset": 0}]
    admins = scenario.admin

    async def ask(step: str, who: Connection) -> None:
        named = [{"topic_name": name, "partitions": rows} for name in (topic, missing)]
        answer = await scenario.settle(who, _K.ALTER_SHARE_GROUP_OFFSETS, 0,
                                       {"group_id": group, "topics": named})  # fmt: skip
        # Kafka shows the id of a topic that may not be read; Tidelog hides it.
        scenario.note(f"{step} alters", _shown_topics(scenario, answer, ids=who is admins))
        named = [{"topic_name": name} for name in (topic, missing)]
        answer = await scenario.settle(who, _K.DELETE_SHARE_GROUP_OFFSETS, 0,
                                       {"group_id": group, "topics": named})  # fmt: skip
        scenario.note(f"{step} deletes", _shown_topics(scenario, answer, ids=True))

    await ask("a stranger", bob)
    await ask("an administrator", admins)
    await ask("a stranger again", bob)


def _shown_topics(scenario: Scenario, answer: Any, *, ids: bool) -> str:
    if isinstance(answer, str):
        return answer
    shown = []
    for row in answer.responses:
        codes = [part.error_code for part in getattr(row, "partitions", ())] or [row.error_code]
        has_id = ("/id" if scenario.ids.get(row.topic_id) else "/none") if ids else ""
        word = row.topic_name.rpartition("-")[2]
        shown.append(f"{word}={'/'.join(map(name, codes))}{has_id}")
    return " ".join([name(answer.error_code), *sorted(shown)])


# -- groups ----------------------------------------------------------------------------------------


def _join(group: str, member: str) -> Body:
    return {
        "group_id": group,
        "session_timeout_ms": _SESSION_MS,
        "rebalance_timeout_ms": 1_500,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }


async def _joined(scenario: Scenario, who: Connection, group: str) -> Any:
    first = await scenario.settle(who, _K.JOIN_GROUP, 9, _join(group, ""))
    return await scenario.ask(who, _K.JOIN_GROUP, 9, _join(group, first.member_id))


async def _classic_group(scenario: Scenario) -> None:
    (topic,) = await scenario.topics("topic")
    group = await scenario.group()
    in_group, on_topic = (_GROUP, group, _READ), (_TOPIC, topic, _READ)
    await scenario.allow("bob", in_group, on_topic)
    bob = scenario.user("bob")
    joined = await _joined(scenario, bob, group)
    member: Body = {
        "group_id": group,
        "member_id": joined.member_id,
        "generation_id": joined.generation_id,
    }
    sync = {
        **member,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined.member_id, "assignment": ASSIGNMENT}],
    }
    commit = {
        "group_id": group,
        "member_id": joined.member_id,
        "generation_id_or_member_epoch": joined.generation_id,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
    }
    topics = [{"name": topic, "partition_indexes": [0]}]
    leave = {"group_id": group, "members": [{"member_id": joined.member_id}]}

    async def all_of(step: str) -> None:
        for api, version, body in (
            (_K.SYNC_GROUP, 5, sync),
            (_K.HEARTBEAT, 4, member),
            (_K.OFFSET_COMMIT, 9, commit),
            (_K.OFFSET_FETCH, 7, {"group_id": group, "topics": topics}),
            (_K.OFFSET_FETCH, 7, {"group_id": group, "topics": None}),
            (_K.METADATA, 9, {"topics": [{"name": topic}]}),
            (_K.FIND_COORDINATOR, 3, {"key": group, "key_type": 0}),
        ):
            answer = await scenario.ask(bob, api, version, body)
            scenario.note(f"{step}, {api.name}", errors(answer))

    await all_of("joined")
    await scenario.revoke("bob", in_group)
    await all_of("group revoked")
    scenario.note("leaving", errors(await scenario.ask(bob, _K.LEAVE_GROUP, 5, leave)))
    shown = await scenario.ask(scenario.admin, _K.DESCRIBE_GROUPS, 5, {"groups": [group]})
    scenario.note("the group", [(g.group_state, len(g.members)) for g in shown.groups])
    await scenario.allow("bob", in_group)
    await all_of("group allowed")
    await scenario.revoke("bob", on_topic)
    await all_of("topic revoked")
    await scenario.allow("bob", (_TOPIC, topic, _DESCRIBE))
    await all_of("topic described")
    scenario.note("leaving", errors(await scenario.ask(bob, _K.LEAVE_GROUP, 5, leave)))


async def _rebalance(scenario: Scenario) -> None:
    group = await scenario.group()
    await scenario.allow("alice", (_GROUP, group, _READ))
    await scenario.allow("bob", (_GROUP, group, _READ))
    alice, bob = scenario.user("alice"), scenario.user("bob")
    joined = await _joined(scenario, alice, group)
    member = {
        "group_id": group,
        "member_id": joined.member_id,
        "generation_id": joined.generation_id,
    }
    first = await scenario.settle(bob, _K.JOIN_GROUP, 9, _join(group, ""))
    waiting = asyncio.create_task(
        scenario.ask(bob, _K.JOIN_GROUP, 9, _join(group, first.member_id))
    )
    await asyncio.sleep(0.3)
    await scenario.revoke("alice", (_GROUP, group, _READ))
    await scenario.revoke("bob", (_GROUP, group, _READ))
    answer = await scenario.ask(alice, _K.HEARTBEAT, 4, member)
    scenario.note("a member without the right, in a rebalance", errors(answer))
    answer = await scenario.ask(alice, _K.JOIN_GROUP, 9, _join(group, joined.member_id))
    scenario.note("joins again", errors(answer))
    answer = await waiting
    mine = answer.leader == first.member_id
    scenario.note("revoked while it waits", f"{errors(answer)} {len(answer.members)} leads={mine}")
    body = {**member, "member_id": first.member_id, "generation_id": answer.generation_id}
    scenario.note("afterwards", errors(await scenario.ask(bob, _K.HEARTBEAT, 4, body)))


async def _consumer_group(scenario: Scenario) -> None:
    first, second = await scenario.topics("first", "second")
    group = await scenario.group()
    rights = [(_GROUP, group, _READ), (_TOPIC, first, _READ), (_TOPIC, second, _DESCRIBE)]
    await scenario.allow("bob", *rights)
    bob = scenario.user("bob")
    subscribed: Body = {
        "group_id": group,
        "member_id": "member",
        "rebalance_timeout_ms": _SESSION_MS,
        "subscribed_topic_names": [first, second],
        "topic_partitions": [],
    }
    steady: Body = {"group_id": group, "member_id": "member"}
    epoch = 0

    async def heartbeat(step: str, body: Body) -> Any:
        nonlocal epoch
        whole = {**body, "member_epoch": epoch}
        answer = await scenario.settle(bob, _K.CONSUMER_GROUP_HEARTBEAT, 1, whole)
        scenario.note(step, errors(answer))
        if not answer.error_code:
            epoch = answer.member_epoch
        return answer

    await heartbeat("joins", subscribed)
    await scenario.revoke("bob", rights[2])
    await heartbeat("a topic revoked, steady", steady)
    await heartbeat("a topic revoked, named", subscribed)
    commit = {
        "group_id": group,
        "member_id": "member",
        "topics": [
            {"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
            for topic in (first, second)
        ],
    }
    body = {**commit, "generation_id_or_member_epoch": epoch}
    answer = await scenario.ask(bob, _K.OFFSET_COMMIT, 9, body)
    codes = {row.name.rpartition("-")[2]: errors(row) for row in answer.topics}
    scenario.note("commits", sorted(codes.items()))
    await scenario.revoke("bob", rights[0])
    await heartbeat("group revoked, steady", steady)
    await heartbeat("group revoked, named", subscribed)
    body = {**commit, "generation_id_or_member_epoch": epoch}
    scenario.note("group revoked", errors(await scenario.ask(bob, _K.OFFSET_COMMIT, 9, body)))
    await scenario.allow("bob", rights[0], rights[2])
    await heartbeat("allowed again", subscribed)
    epoch = -1
    await scenario.revoke("bob", rights[0])
    await heartbeat("leaves without the right", steady)
    await scenario.allow("bob", rights[0])
    await heartbeat("leaves", steady)


async def _pattern(scenario: Scenario) -> None:
    seen, hidden = await scenario.topics("seen", "hidden")
    group = await scenario.group()
    sees = (_TOPIC, seen, _DESCRIBE)
    await scenario.allow("bob", (_GROUP, group, _READ), sees)
    bob = scenario.user("bob")
    body: Body = {
        "group_id": group,
        "member_id": "member",
        "rebalance_timeout_ms": _SESSION_MS,
        "subscribed_topic_names": [],
        "subscribed_topic_regex": f"{scenario.flow}-.*",
        "topic_partitions": [],
    }
    assigned: list[str] = []
    epoch = 0

    async def heartbeats(step: str, wanted: list[str]) -> None:
        """Heartbeat until the assignment is as wanted, or stays as it is for some time."""
        nonlocal assigned, epoch
        deadline = asyncio.get_running_loop().time() + (SETTLED_S if wanted != assigned else 1.5)
        while asyncio.get_running_loop().time() < deadline:
            whole = {**body, "member_epoch": epoch}
            answer = await scenario.settle(bob, _K.CONSUMER_GROUP_HEARTBEAT, 1, whole)
            if answer.error_code:
                break
            epoch = answer.member_epoch
            if answer.assignment is not None:
                had = answer.assignment.topic_partitions
                assigned = sorted(scenario.ids[topic.topic_id] for topic in had)
                body["topic_partitions"] = [
                    {"topic_id": topic.topic_id, "partitions": topic.partitions} for topic in had
                ]
            if assigned == wanted and deadline - asyncio.get_running_loop().time() > 2:
                break
            await asyncio.sleep(0.1)
        scenario.note(step, f"{errors(answer)} {[one.rpartition('-')[2] for one in assigned]}")

    await heartbeats("joins", [seen])
    await scenario.allow("bob", (_TOPIC, hidden, _DESCRIBE))
    await heartbeats("the other topic allowed", [seen])
    await scenario.revoke("bob", sees)
    await heartbeats("the topic revoked", [seen])
    answer = await scenario.ask(bob, _K.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]})
    scenario.note("described", errors(answer))


# -- transactions ----------------------------------------------------------------------------------


class _Producer:
    """A transactional producer: one from before KIP-890, or one that adds partitions by writing."""

    def __init__(self, scenario: Scenario, own: str, group: str, *, is_new: bool) -> None:
        self._scenario = scenario
        self._bob = scenario.user("bob")
        self._id = own
        self._group = group
        self._is_new = is_new
        self._producer: Body = {}
        self._sequences: Counter[str] = Counter()

    async def _ask(self, step: str, api: ApiKey, version: int, body: Body) -> Any:
        answer = await self._scenario.settle(self._bob, api, version, body)
        self._scenario.note(f"{step}, {api.name}", errors(answer))
        return answer

    async def init(self, step: str) -> None:
        """Get a producer id."""
        body = {"transactional_id": self._id, "transaction_timeout_ms": 600_000}
        answer = await self._ask(step, _K.INIT_PRODUCER_ID, 4, body)
        if not answer.error_code:
            self._producer = {
                "producer_id": answer.producer_id,
                "producer_epoch": answer.producer_epoch,
            }

    async def write(self, step: str, *topics: str) -> None:
        """Add the topics to the transaction, and write to each."""
        if not self._is_new:
            body = {
                "v3_and_below_transactional_id": self._id,
                "v3_and_below_producer_id": self._producer["producer_id"],
                "v3_and_below_producer_epoch": self._producer["producer_epoch"],
                "v3_and_below_topics": [{"name": topic, "partitions": [0]} for topic in topics],
            }
            await self._ask(step, _K.ADD_PARTITIONS_TO_TXN, 3, body)
        for topic in topics:
            sequence = self._sequences[topic]
            records = batch(
                self._producer["producer_id"],
                self._producer["producer_epoch"],
                sequence,
                is_transactional=True,
            )
            body = produced(topic, records, self._id)
            answer = await self._ask(step, _K.PRODUCE, 12 if self._is_new else 11, body)
            self._sequences[topic] += set(error_codes(answer)) == {0}

    async def offsets(self, step: str, topic: str) -> None:
        """Commit an offset in the transaction."""
        body = {"transactional_id": self._id, "group_id": self._group, **self._producer}
        if not self._is_new:
            await self._ask(step, _K.ADD_OFFSETS_TO_TXN, 3, body)
        partition = {"partition_index": 0, "committed_offset": 1}
        commit = {**body, "topics": [{"name": topic, "partitions": [partition]}]}
        await self._ask(step, _K.TXN_OFFSET_COMMIT, 5 if self._is_new else 3, commit)

    async def end(self, step: str, *, committed: bool) -> None:
        """End the transaction."""
        body = {"transactional_id": self._id, **self._producer, "committed": committed}
        answer = await self._ask(step, _K.END_TXN, 5 if self._is_new else 4, body)
        if self._is_new and not answer.error_code:
            self._producer = {
                "producer_id": answer.producer_id,
                "producer_epoch": answer.producer_epoch,
            }
            self._sequences.clear()


def _transaction(*, is_new: bool) -> Callable[[Scenario], Awaitable[None]]:
    async def flow(scenario: Scenario) -> None:
        first, second = await scenario.topics("first", "second")
        group, own = await scenario.group(), await scenario.transactional_id()
        may_id, may_group = (_ID, own, _WRITE), (_GROUP, group, _READ)
        may_first, may_second = (_TOPIC, first, _WRITE), (_TOPIC, second, _WRITE)
        may_read = (_TOPIC, first, _READ)
        await scenario.allow("bob", may_id, may_group, may_first, may_second, may_read)
        producer = _Producer(scenario, own, group, is_new=is_new)

        async def everything(step: str) -> None:
            await producer.write(step, first, second)
            await producer.offsets(step, first)
            asked = {"transactional_ids": [own]}
            shown = await scenario.ask(scenario.admin, _K.DESCRIBE_TRANSACTIONS, 0, asked)
            scenario.note(f"{step}, the transaction", shown.transaction_states[0].transaction_state)

        await producer.init("begun")
        await everything("begun")
        await scenario.revoke("bob", may_id)
        await everything("id revoked")
        await producer.end("id revoked", committed=True)
        await producer.init("id revoked")
        await scenario.allow("bob", may_id)
        await producer.end("id allowed", committed=True)
        await everything("the second")
        await scenario.revoke("bob", may_first)
        await everything("topic revoked")
        await scenario.revoke("bob", may_group)
        await producer.offsets("group revoked", first)
        await scenario.allow("bob", may_group)
        await scenario.revoke("bob", may_read)
        await producer.offsets("offsets' topic revoked", first)
        await producer.end("topic revoked", committed=True)
        await scenario.revoke("bob", may_second)
        await everything("no topic")
        await producer.end("no topic", committed=False)
        for topic in (first, second):
            body = {**wanted({topic: 1}, scenario.ids), "isolation_level": 1}
            answer = await scenario.ask(scenario.admin, _K.FETCH, 12, body)
            scenario.note("committed", fetched(scenario, answer))

    return flow


# -- topics that are created by asking for them ---------------------------------------------------


async def _creation(scenario: Scenario) -> None:
    on_cluster = ResourceType.CLUSTER, CLUSTER_NAME, Operation.CREATE
    alice = scenario.user("alice")
    for word, rights in {
        "nothing": [],
        "describe": [_DESCRIBE],
        "create": [Operation.CREATE],
        "both": [_DESCRIBE, Operation.CREATE],
        "write": [_WRITE],
    }.items():
        topic = scenario.own(word)
        await scenario.allow("alice", *((_TOPIC, topic, right) for right in rights))
        await _ask_for(scenario, alice, word, topic)
    await scenario.allow("alice", on_cluster)
    for word, rights in {"cluster": [], "cluster-describe": [_DESCRIBE]}.items():
        topic = scenario.own(word)
        await scenario.allow("alice", *((_TOPIC, topic, right) for right in rights))
        await _ask_for(scenario, alice, word, topic)
    await scenario.revoke("alice", on_cluster)
    everything = await scenario.ask(scenario.admin, _K.METADATA, 9, {"topics": None})
    own = sorted(t.name for t in everything.topics if t.name.startswith(scenario.flow))
    scenario.note("created", own)


async def _ask_for(scenario: Scenario, who: Connection, word: str, topic: str) -> None:
    """Ask until the topic is there or refused; Kafka creates it after its first answer."""
    body = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
    answer = await scenario.settle(who, _K.METADATA, 9, body)
    scenario.note(word, " ".join(name(row.error_code) for row in answer.topics))


# -- logins ----------------------------------------------------------------------------------------


async def _another_login(scenario: Scenario) -> None:
    (topic,) = await scenario.topics("topic")
    await scenario.allow("bob", (_TOPIC, topic, _DESCRIBE))

    async def send(client: RawClient, step: str, message: Any, version: int) -> None:
        try:
            answer = await client.request(message, version)
        except (ConnectionClosed, ConnectionError):
            scenario.note(step, CLOSED)
            return
        shown = [getattr(answer, "error_message", None), len(getattr(answer, "topics", ()))]
        scenario.note(step, f"{' '.join(sorted(set(errors(answer).split())))} {shown}")

    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9
    plain = _PLAIN, 1
    for step, messages in {
        "the same user": (asked, plain, (token("bob"), 2), asked),
        "another user": (asked, plain, (token("alice"), 2), asked),
        "a super user": (asked, plain, (token(SUPER_USER), 2), asked),
        "a wrong password": (asked, plain, (token("bob", "wrong"), 2), asked),
        "an unknown user": (asked, plain, (token("nobody"), 2), asked),
        "another mechanism": ((_SCRAM, 1), (token("bob"), 2), asked),
        "another mechanism, no token": ((_SCRAM, 1), asked, plain),
        "another mechanism, then the same": ((_SCRAM, 1), plain, (token("bob"), 2)),
        "an unknown mechanism": ((_GSSAPI, 1), asked),
        "a request in between": (plain, (HeartbeatRequest(), 4), (token("bob"), 2)),
        "no handshake": ((token("bob"), 2), asked),
        "an old handshake": ((_PLAIN, 0), asked),
        "twice at once": (asked, plain, (token("bob"), 2), plain, asked),
    }.items():
        host, _, port = scenario.stage.secured.rpartition(":")
        client = await LoggedIn(scenario.stage.secured, "bob").opened(host, int(port))
        for number, (message, version) in enumerate(messages, 1):
            await send(client, f"{step} {number}", message, version)
        await client.close()


FLOWS: Final[dict[str, Callable[[Scenario], Awaitable[None]]]] = {
    "session-by-name": _fetch_session(12),
    "session-by-id": _fetch_session(17),
    "waiting-fetch": _waiting_fetch,
    "share-offsets": _share_offsets,
    "classic-group": _classic_group,
    "rebalance": _rebalance,
    "consumer-group": _consumer_group,
    "pattern": _pattern,
    "old-transaction": _transaction(is_new=False),
    "new-transaction": _transaction(is_new=True),
    "creation": _creation,
    "another-login": _another_login,
}


async def _lines(stage: Stage, flow: str) -> list[str]:
    scenario = Scenario(stage, flow)
    try:
        await FLOWS[flow](scenario)
    finally:
        await scenario.close()
    return scenario.lines


async def _all_flows(stage: Stage) -> dict[str, list[str]]:
    # New topics of other flows would resolve the pattern again.
    found = {"pattern": await _lines(stage, "pattern")}
    others = [flow for flow in FLOWS if flow not in found]
    lines = await asyncio.gather(*(_lines(stage, flow) for flow in others))
    return found | dict(zip(others, lines, strict=True))


def of_tidelog(directory: Path) -> dict[str, list[str]]:
    """The lines of every flow, of a Tidelog on a new directory."""
    with tidelog(directory, USERS, SETTINGS) as stage:
        return asyncio.run(_all_flows(stage))


def of_kafka(directory: Path) -> dict[str, list[str]]:
    """The lines of every flow, of an Apache Kafka on a new directory."""
    with kafka(directory, USERS, SETTINGS) as stage:
        return asyncio.run(_all_flows(stage))
