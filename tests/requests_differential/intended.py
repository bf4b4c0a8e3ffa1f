"""The differences that are meant to be, each with its reason; docs/compatibility.md lists them.

A row names APIs and versions, and what was sent, where in the answer and both values, each by a
pattern that has to match the whole. A difference that no row matches fails the test, and so does a
row that matches nothing any more.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.api_keys import ApiKey
from tests.requests_differential.run import Difference


class Intended(NamedTuple):
    """A family of differences; the patterns have to match whole texts."""

    reason: str
    apis: tuple[ApiKey, ...]
    sent: str = ".*"
    at: str = ".*"
    ours: str = ".*"
    theirs: str = ".*"
    versions: range = range(100)

    def covers(self, difference: Difference) -> bool:
        """Whether the difference is one of this family."""
        pairs = (
            (self.at, difference.at),
            (self.ours, difference.ours),
            (self.theirs, difference.theirs),
            (self.sent, difference.sent),
        )
        if difference.api not in self.apis or difference.version not in self.versions:
            return False
        return all(re.fullmatch(pattern, text, re.S) for pattern, text in pairs)


_K = ApiKey
_CONTROLLED: Final = (_K.CREATE_TOPICS, _K.ALTER_CONFIGS, _K.INCREMENTAL_ALTER_CONFIGS)
_INTERNAL: Final = r".*'__(consumer_offsets|transaction_state)'.*"

INTENDED: Final[tuple[Intended, ...]] = (
    # -- what is each broker's own ----------------------------------------------------------------
    Intended(
        "the ranges of versions and the levels of features are each broker's own: Tidelog serves "
        "all versions from 0 on; Kafka has APIs between brokers",
        (_K.API_VERSIONS,),
        at=r"(api_keys|supported_features|finalized_features).*",
    ),
    Intended(
        "each broker lists settings of its own, with its own defaults and synonyms; what a group, "
        "a broker or a logger is set to is what it was started with",
        (_K.DESCRIBE_CONFIGS,),
        at=r"results\[.*\]\.configs.*",
        sent=r".*configuration_keys=(null|empty).*|.*include_(synonyms|documentation)=True.*",
    ),
    Intended(
        "a resource that stands in the request twice is described once, in Kafka twice",
        (_K.DESCRIBE_CONFIGS,),
        at=r"results\[.* #2\].*",
        ours="absent",
        sent=r".*resources=twice.*",
    ),
    Intended(
        "a new topic is described with the settings that each broker has",
        (_K.CREATE_TOPICS,),
        at=r"topics\[.*\]\.configs.*",
    ),
    Intended(
        "the internal topics hold records of another number and layout",
        (_K.FETCH, _K.OFFSET_FOR_LEADER_EPOCH),
        sent=_INTERNAL,
        at=r".*\.(high_watermark|last_stable_offset|records|end_offset)",
    ),
    Intended(
        "the internal topics have another size",
        (_K.DESCRIBE_LOG_DIRS,),
        at=r".*\[__(consumer_offsets|transaction_state)\].*partition_size",
    ),
    Intended(
        "one node without a quorum has no log of metadata to report offsets and epochs of, and "
        "its voter has the listeners of clients",
        (_K.DESCRIBE_QUORUM,),
        at=r".*(log_end_offset|high_watermark|leader_epoch|listeners.*)",
    ),
    Intended(
        "an address of a quota is no host name; an entry that stands there twice is answered twice",
        (_K.ALTER_CLIENT_QUOTAS,),
        at=r"entries\[.*",
    ),
    Intended(
        "an empty salted password is no acceptable credential; Kafka fails inside",
        (_K.ALTER_USER_SCRAM_CREDENTIALS,),
        sent=r"upsertion: upsertions\.salted_password=empty",
        at=r"results\[.*\]\.error_(code|message)",
    ),
    Intended(
        "versions that old clients send with no time do the work, as brokers of that time did; "
        "Kafka 4 does nothing, and old librdkafka reports success all the same",
        (_K.CREATE_TOPICS,),
        sent=r".*timeout_ms=(min|-2|-1|0).*",
        versions=range(5),
    ),
    Intended(
        "versions that old clients send with no time delete the topic, as brokers of that time did",
        (_K.DELETE_TOPICS,),
        sent=r".*timeout_ms=(min|-2|-1|0).*",
        versions=range(4),
    ),
    Intended(
        "versions that old clients send with no time add the partitions, as brokers of that time "
        "did",
        (_K.CREATE_PARTITIONS,),
        sent=r".*timeout_ms=(min|-2|-1|0).*",
        versions=range(2),
    ),
    # -- where Kafka fails, or does not answer ----------------------------------------------------
    Intended(
        "an owner without a type is one that has no token; Kafka fails inside",
        (_K.CREATE_DELEGATION_TOKEN,),
        sent=r".*owner_principal_type=null",
        at=r"(error_code|principal_(name|type))",
    ),
    Intended(
        "records that are null are refused; Kafka fails and does not answer",
        (_K.PRODUCE,),
        sent=r".*records=null.*",
        at="answer",
        theirs="no answer",
    ),
    Intended(
        "a partition that stands in a marker twice is written once; Kafka does not answer",
        (_K.WRITE_TXN_MARKERS,),
        sent=r"markers\.topics(\.partition_indexes)?=twice",
    ),
    Intended(
        "a member may name a protocol twice, or bring metadata that is no subscription; Kafka "
        "fails and lets it wait, or answers UNKNOWN_SERVER_ERROR",
        (_K.JOIN_GROUP,),
        sent=r".*(protocols=twice|metadata=garbage).*",
    ),
    Intended(
        "without an authorizer access rules are disabled whatever is asked; Kafka closes the "
        "connection when a type, an operation or a permission is 0",
        (_K.DESCRIBE_ACLS, _K.CREATE_ACLS, _K.DELETE_ACLS),
        at="answer",
        ours=r"answered.* SECURITY_DISABLED|answered SECURITY_DISABLED",
        theirs="connection closed",
    ),
    Intended(
        "an operation that does not exist is an invalid request; Kafka fails internally",
        (_K.INCREMENTAL_ALTER_CONFIGS,),
        sent=r".*config_operation=.*",
        at=r"responses\[.*\]\.error_(code|message)",
        theirs="UNKNOWN_SERVER_ERROR|None",
    ),
    Intended(
        "a topic by neither name nor id is an unknown id; Kafka fails internally",
        (_K.METADATA,),
        sent=r".*(topics\.name=null|topics\.topic_id=zero).*",
        versions=range(12, 14),
    ),
    # -- texts, and what stands beside an error ---------------------------------------------------
    Intended(
        "the reason of a refusal is put into words also where Kafka has none",
        tuple(ApiKey),
        at=r".*error_message",
        ours="text",
        theirs="None|",
    ),
    Intended(
        "a success has no text; Kafka says NONE, or that there was nothing to do",
        (_K.UPDATE_FEATURES, _K.ELECT_LEADERS, _K.ALTER_PARTITION_REASSIGNMENTS),
        at=r".*error_message",
        ours="None",
        theirs="text|",
    ),
    Intended(
        "the answer to a refused batch has the start of the log too; in Kafka that depends on the "
        "layer that refuses",
        (_K.PRODUCE,),
        at=r".*\.log_start_offset",
        ours="0|-1",
        theirs="0|-1",
    ),
    Intended(
        "a protocol without a name is answered as '' rather than null",
        (_K.JOIN_GROUP,),
        sent=r".*protocols\.name=''.*",
        at="protocol_name",
        ours="",
        theirs="None",
    ),
    # -- records ----------------------------------------------------------------------------------
    Intended(
        "acks that do not exist are refused before the records are looked at, in Kafka afterwards",
        (_K.PRODUCE,),
        sent=r".*acks=(2|-2|min|max).*",
        at=r"answer|.*\.error_(code|message)",
        ours=r"INVALID_REQUIRED_ACKS|answered INVALID_REQUIRED_ACKS|None",
    ),
    Intended(
        "every transactional batch has to belong to the transactional id of its request and to "
        "have a producer id; Kafka asks its coordinator once for each partition and transaction, "
        "stores what follows under any id but null, and a batch without producer id outside "
        "transactions",
        (_K.PRODUCE,),
        sent=r".*(transactional_id=|records=transactional).*",
        at=r"responses\[.*|afterwards \d: .*offset",
        ours=r"INVALID_PRODUCER_ID_MAPPING|INVALID_REQUEST|-1|\d+",
    ),
    Intended(
        "a fetch that is refused as a whole names its partitions also in the versions with ids",
        (_K.FETCH,),
        sent=r".*isolation_level=.*",
        at=r"responses\[.*\]",
        ours="present",
        theirs="absent",
        versions=range(13, 100),
    ),
    Intended(
        "a session id that was never given is ignored where the epoch says that there is no "
        "session, and else not found; Kafka fails internally on those at the ends of the range",
        (_K.FETCH,),
        sent=r".*session_id=.*",
    ),
    Intended(
        "a full fetch without partitions opens no session",
        (_K.FETCH,),
        sent=r"session: topics(\.partitions)?=empty",
        at="session_id",
        ours="0",
        theirs="session",
    ),
    Intended(
        "a limit below 0 is seen before the offset is, in Kafka afterwards",
        (_K.FETCH,),
        sent=r".*fetch_offset=.*partition_max_bytes=.*",
        at=r".*\.error_code",
        ours="UNKNOWN_SERVER_ERROR",
        theirs="OFFSET_OUT_OF_RANGE",
    ),
    Intended(
        "the leader epoch is judged before a time that is reserved for tiered storage, in Kafka "
        "afterwards",
        (_K.LIST_OFFSETS,),
        sent=r".*current_leader_epoch=.*",
        at=r".*\.error_code",
        ours="(UNKNOWN|FENCED)_LEADER_EPOCH",
        theirs="UNSUPPORTED_VERSION",
    ),
    # -- topics and settings ----------------------------------------------------------------------
    Intended(
        "topics may be asked for by id from version 10 of Metadata on, also beside a name; Kafka "
        "refuses the whole request before version 12",
        (_K.METADATA,),
        versions=range(10, 12),
    ),
    Intended(
        "no partition follows one with the largest number; in Kafka the page after it overflows",
        (_K.DESCRIBE_TOPIC_PARTITIONS,),
        sent=r".*cursor\.partition_index=max.*",
        at="next_cursor",
        ours="None",
    ),
    Intended(
        "of several faults of a new topic the replication factor is named, in Kafka the number of "
        "partitions; too many partitions are INVALID_PARTITIONS, in Kafka a policy",
        (_K.CREATE_TOPICS,),
        sent=r".*num_partitions=.*",
        at=r"topics\[.*\]\.error_code",
        ours="INVALID_REPLICATION_FACTOR|INVALID_PARTITIONS",
        theirs="INVALID_PARTITIONS|POLICY_VIOLATION",
    ),
    Intended(
        "a topic that is only validated has no id yet; in Kafka 4.3 it is given one",
        (_K.CREATE_TOPICS,),
        sent=r".*validate_only=True.*",
        at=r"topics\[.*\]\.topic_id",
    ),
    Intended(
        "settings that Kafka 4 has dropped are still taken: `message.downconversion.enable` and "
        "`message.timestamp.difference.max.ms`; segments may be smaller than 1 MiB",
        _CONTROLLED,
        sent=r".*configs=(message\.downconversion\.enable|message\.timestamp\.difference\.max\.ms"
        r"|segment\.bytes)=.*",
    ),
    Intended(
        "an index has room for an entry of each kind at least, so `segment.index.bytes` begins at "
        "24",
        _CONTROLLED,
        sent=r".*configs=segment\.index\.bytes=4",
    ),
    Intended(
        "values are described as they were set, not as they were understood",
        _CONTROLLED,
        sent=r".*configs=(cleanup\.policy=delete,delete|preallocate=TRUE"
        r"|min\.cleanable\.dirty\.ratio=1)",
        at=r".*\.value",
    ),
    Intended(
        "the settings of throttled replicas mean nothing, so nothing can be appended to them; "
        "nothing may be appended to the cleanup policies",
        (_K.INCREMENTAL_ALTER_CONFIGS,),
        sent=r"of a topic's list: .*(throttled\.replicas=|cleanup\.policy=$|value='').*",
    ),
    Intended(
        "a topic is looked for before its settings are judged, in Kafka afterwards",
        (_K.INCREMENTAL_ALTER_CONFIGS,),
        sent=r"of a group: .*resource_type=2\b.*",
        at=r"responses\[.*\]\.error_code",
    ),
    Intended(
        "a partition of a topic that does not exist is unknown; Kafka calls a name illegal when "
        "the name of a second directory for the partition would be too long",
        (_K.ALTER_REPLICA_LOG_DIRS,),
        sent=r".*name=\d+ characters.*",
        at=r".*\.error_code",
        ours="UNKNOWN_TOPIC_OR_PARTITION",
        theirs="INVALID_TOPIC_EXCEPTION",
    ),
    Intended(
        "a type of match that does not exist is named before a type of entity",
        (_K.DESCRIBE_CLIENT_QUOTAS,),
        at="error_code",
        ours="INVALID_REQUEST",
        theirs="UNSUPPORTED_VERSION",
    ),
    Intended(
        "`kraft.version` is no feature of a broker without a quorum",
        (_K.UPDATE_FEATURES,),
        sent=r".*'kraft\.version'.*",
    ),
    # -- share groups -----------------------------------------------------------------------------
    Intended(
        "a key that names a share partition has the id that each broker gave the topic",
        (_K.FIND_COORDINATOR,),
        sent=r".*share key.*",
        at=r"coordinators\[.*",
    ),
    Intended(
        "the first answer to a member of a share group has its partitions; Kafka's is empty, and "
        "the next one has them",
        (_K.SHARE_GROUP_HEARTBEAT,),
        at=r"assignment\.topic_partitions.*",
        theirs="absent",
    ),
    Intended(
        "a partition without a stored state is refused at once; Kafka looks for the state, and "
        "answers without it when the client does not wait",
        (_K.SHARE_FETCH,),
        sent=r".*share_session_epoch=0.*",
        at=r"responses\[.*",
        theirs="absent",
    ),
    Intended(
        "a group without a name, partitions below 0 and a topic without partitions have no state; "
        "Kafka fails internally, and does not answer about partitions that do not exist",
        (_K.DESCRIBE_SHARE_GROUP_OFFSETS,),
        sent=r".*(group_id=''|partitions=(empty|min|-1|-2|1|2|max)).*",
    ),
    # -- groups -----------------------------------------------------------------------------------
    Intended(
        "a member of the consumer protocol that heartbeats to a group that does not exist is "
        "unknown, upon which it joins again; Kafka's GROUP_ID_NOT_FOUND ends the Java client",
        (_K.CONSUMER_GROUP_HEARTBEAT,),
        at="error_code",
        ours="UNKNOWN_MEMBER_ID",
        theirs="GROUP_ID_NOT_FOUND",
    ),
    Intended(
        "a commit in an epoch to a group that does not exist is ILLEGAL_GENERATION",
        (_K.OFFSET_COMMIT,),
        at=r".*\.error_code",
        ours="ILLEGAL_GENERATION",
        theirs="GROUP_ID_NOT_FOUND",
        versions=range(9, 100),
    ),
    Intended(
        "a group of the consumer protocol begins in epoch 1, in Kafka in epoch 2; so the epoch 2 "
        "is the current one there",
        (_K.CONSUMER_GROUP_HEARTBEAT, _K.OFFSET_COMMIT, _K.OFFSET_FETCH),
        sent=r"join: .*|.*member_epoch=2.*",
    ),
    Intended(
        "a new assignment is made with the change that calls for it; Kafka makes it with the next "
        "heartbeat of a member, so its epoch may lag behind the group's",
        (_K.CONSUMER_GROUP_HEARTBEAT,),
        at=r"afterwards 1: groups\[.*\]\.(assignment_epoch|group_epoch)",
    ),
    Intended(
        "a pattern is resolved before the heartbeat is answered, in Kafka by a later one",
        (_K.CONSUMER_GROUP_HEARTBEAT,),
        sent=r".*subscribed_topic_regex=.*",
    ),
    Intended(
        "a heartbeat is complete, and answered with the assignment, when its rebalance timeout is "
        "at least 0; in Kafka when that is not -1 and topic names are given",
        (_K.CONSUMER_GROUP_HEARTBEAT,),
        sent=r"steady: (rebalance_timeout_ms=(min|-2)|subscribed_topic_names=null)",
        at="assignment",
    ),
    Intended(
        "another assignor is described when it has made an assignment, in Kafka as soon as most "
        "members ask for it",
        (_K.CONSUMER_GROUP_HEARTBEAT,),
        sent=r".*server_assignor='range'.*",
        at=r".*\.assignor_name",
    ),
    Intended(
        "an epoch without a member is an unknown member; Kafka fails internally",
        (_K.OFFSET_FETCH,),
        sent=r".*member_id=null.*",
        theirs="UNKNOWN_SERVER_ERROR",
    ),
    Intended(
        "a refused join leaves no group behind; in Kafka an empty one",
        (_K.JOIN_GROUP,),
        at=r"afterwards 1: groups\[.*\]\.group_state",
        ours="Dead",
        theirs="Empty",
    ),
    Intended(
        "a rebalance timeout below 0 stands for the session timeout; in Kafka no time is left to "
        "synchronize",
        (_K.JOIN_GROUP,),
        sent=r".*rebalance_timeout_ms=(min|-2|-1).*",
        at=r"afterwards 1: .*",
    ),
    Intended(
        "a start below -1 is refused; Kafka stores it",
        (_K.INITIALIZE_SHARE_GROUP_STATE,),
        sent=r".*start_offset=(min|-2).*",
    ),
    # -- transactions -----------------------------------------------------------------------------
    Intended(
        "before version 4 offsets of a group that is not in the transaction are INVALID_TXN_STATE: "
        "clients do not know TRANSACTION_ABORTABLE there; Kafka has the one for the other in "
        "version 4, though rarely",
        (_K.TXN_OFFSET_COMMIT,),
        at=r".*\.error_code",
        ours="INVALID_TXN_STATE|TRANSACTION_ABORTABLE",
        theirs="INVALID_TXN_STATE|TRANSACTION_ABORTABLE",
        versions=range(5),
    ),
    Intended(
        "a broker's request without transactions is answered; Kafka leaves it without an answer",
        (_K.ADD_PARTITIONS_TO_TXN,),
        sent=r".*transactions=empty",
        at="answer",
        theirs="no answer",
        versions=range(4, 100),
    ),
    Intended(
        "a transaction that a broker's request adds to twice waits for itself: the second part is "
        "CONCURRENT_TRANSACTIONS",
        (_K.ADD_PARTITIONS_TO_TXN,),
        sent=r"transactions=twice",
        ours="CONCURRENT_TRANSACTIONS",
        theirs="NONE",
        versions=range(4, 100),
    ),
    Intended(
        "the topic of the states of transactions is part of none; Kafka adds it for brokers",
        (_K.ADD_PARTITIONS_TO_TXN,),
        sent=r"transactions\.topics\.name='__transaction_state'",
        versions=range(4, 100),
    ),
    Intended(
        "an abort without a transaction leaves no time of a transaction behind",
        (_K.END_TXN,),
        sent=r"none open: .*committed=False.*",
        at=r".*\.transaction_start_time_ms",
    ),
    Intended(
        "markers for producer ids or versions of transactions below 0 are refused; Kafka writes "
        "those below -1",
        (_K.WRITE_TXN_MARKERS,),
        sent=r".*(producer_id|transaction_version)=(min|-2).*",
    ),
)


def unexplained(differences: Iterable[Difference]) -> list[Difference]:
    """Those that no row covers."""
    return [d for d in differences if not any(row.covers(d) for row in INTENDED)]
