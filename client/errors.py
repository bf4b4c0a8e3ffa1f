"""The errors that a user of the client may see, in few classes.

Every message names the broker, the request and the cure. `BrokerRefused` carries Kafka's error code
for programs; all other classes mean that no broker judged the request. This module knows the codes
and their cures, and nothing about sockets or retries.
"""

import shlex
from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from protocol.time_windows import MARK, MalformedWindow, parse_window, topic_of


class ClientError(Exception):
    """Anything the client reports; catch this to catch all of it.

    `broker` is ``host:port`` where one was involved, else None.
    """

    def __init__(self, message: str, *, broker: str | None = None) -> None:
        """Keep the sentence and the broker it concerns."""
        super().__init__(message)
        self.broker = broker


class InvalidUse(ClientError, ValueError):
    """The arguments make no valid request; nothing was sent."""


class InvalidType(InvalidUse, TypeError):
    """A value of the wrong type; the message names it, its type and the expected one."""


class BadFile(InvalidUse):
    """A file of `Security` that cannot be used; `field` is its field's name."""

    def __init__(self, field: str, path: str, problem: object) -> None:
        """Keep the field besides the sentence."""
        self.field, self.path, self.problem = field, path, problem
        super().__init__(f"{field}={path!r}: {problem}; give a PEM file")


class InvalidTime(InvalidUse):
    """A text, number or datetime that is not a usable time."""


class NotThere(InvalidUse):
    """A partition that the topic does not have."""

    @classmethod
    def partition(cls, topic: str, partition: int, count: int) -> "NotThere":
        """The topic has `count` partitions, and this one is not among them."""
        return cls(f"{topic} has no partition {partition}: it has 0 to {count - 1}")


class ClientBroken(ClientError):
    """A defect in the client itself ended one of its tasks: close it and open another.

    The exception that shows the defect is its ``__cause__``.
    """


class ListenerFailed(ClientError):
    """`on_assigned`, `on_revoked`, `on_lost` or `on_statistics` raised.

    Its exception is the ``__cause__``.
    """


class BrokerUnreachable(ClientError):
    """No connection, a lost connection, or no answer in time."""


class NameUnknown(BrokerUnreachable):
    """The host name of an address is not known on this machine, now at least."""


class AddressUnusable(ClientError):
    """The cluster gives its brokers addresses whose host names are not known on this machine.

    Several attempts have not helped, and the client has reached none of the brokers by such an
    address. A client keeps working, and calls succeed once the names are known.
    """


class UnsupportedByBroker(ClientError):
    """The broker does not serve the request, or no version of it that this client knows."""


class BadRecords(ClientError):
    """Record bytes from the broker that fail their check sum or do not parse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """The right that a refused request needs: `user` `operation` a topic.

    A client does not know the `user` that a `proof`, its token or its certificate, stands for.
    """

    user: str
    proof: str
    operation: str
    topic: str

    @property
    def sentence(self) -> str:
        """What the user may not do."""
        who = "a client without a user"
        if self.user:
            who = f"user {self.user}"
        elif self.proof:
            who = f"the user of the {self.proof}"
        return f"{who} may not {self.operation} topic {self.topic}"

    @property
    def cure(self) -> str:
        """The command that gives the right."""
        topic = topic_of(self.topic)  # a window has no rules of its own
        ways = {
            "WRITE": f"--produce {topic}",
            "READ": f"--consume {topic} --group GROUP",
        }
        words = ways.get(self.operation) or " or ".join(ways.values())
        user = shlex.quote(self.user) if self.user else ("NAME" if self.proof else "ANONYMOUS")
        return _granted_by(f"--user {user} {words}")


def _granted_by(words: str) -> str:
    return f"an admin can grant it: tidelog acl add {words}"


class BrokerRefused(ClientError):
    """The broker answered with an error code.

    `code` is the Kafka error; `detail` is the broker's own sentence, if it sent one. `is_final`
    errors are facts that another attempt does not change, whatever their code usually means.
    """

    def __init__(
        self,
        what: str,
        code: int,
        *,
        broker: str | None = None,
        detail: str | None = None,
        is_final: bool = False,
        denied: Denied | None = None,
        cure: str | None = None,
    ) -> None:
        """Build the sentence: the request, the code, the broker's message, the cure.

        `denied` is the right in question, in case that the code says that it is missing. `cure`
        replaces the usual one of the code.
        """
        self.is_final = is_final
        self.code = error_code_of(code)
        self.detail = detail or None
        cure = cure or _window_cure(self.code, what, self.detail) or CURES.get(self.code)
        if denied is not None and self.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.detail, cure = denied.sentence, denied.cure
        where = f" (broker {broker})" if broker else ""
        said = f": {self.detail.rstrip('.')}" if self.detail else ""
        hint = f"; {cure}" if cure else ""
        super().__init__(f"{what}: {self.code.name}{said}{where}{hint}", broker=broker)

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later, by Kafka's own classification."""
        return self.code.retriable and not self.is_final


def _window_cure(code: ErrorCode, what: str, detail: str | None) -> str | None:
    """The cure for the name of a time window in `what`, which has other rules than topics."""
    name = next((word for word in what.split() if MARK in word), None)
    if name is None or code not in _OF_NAMES:
        return None
    if detail is not None and MARK in detail:
        return "write to the topic itself, or read the window by a name of that form"
    times = name.rpartition(MARK)[2]
    try:
        window = parse_window(name.rpartition("-")[0] if "-" in times else name)
    except MalformedWindow as error:
        return str(error)
    if window is None:
        return None
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return (
            f"it is a time window, which is only read: write to {window.topic} itself; a broker "
            "serves readers of windows with time.windows.enable=true"
        )
    return (
        f"it is a time window: a broker serves these with time.windows.enable=true, if there is a "
        f"topic {window.topic}"
    )


def error_code_of(code: int) -> ErrorCode:
    """The `ErrorCode` of a wire value; a code unknown here reads as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


_OF_NAMES = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

CURES: dict[ErrorCode, str] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "choose an offset between the earliest and the latest one",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic first, or check its name and partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted or created again; try again",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller records, or raise max.message.bytes of the topic",
    ErrorCode.RECORD_LIST_TOO_LARGE: "send smaller batches, or raise segment.bytes of the topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a name has 1 to 249 letters, digits, '.', '_' or '-', and is not '.' or '..'; topics of "
        "the broker itself, like __consumer_offsets, are written by it alone"
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or delete the topic first",
    ErrorCode.INVALID_TIMESTAMP: (
        "give timestamps in milliseconds, or widen message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms of the topic"
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: "a single broker can only keep one replica",
    ErrorCode.NOT_ENOUGH_REPLICAS: "lower min.insync.replicas of the topic",
    ErrorCode.NON_EMPTY_GROUP: "stop the members of the group first",
    ErrorCode.GROUP_ID_NOT_FOUND: "check the name with the list of groups",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has gone on without this member; poll more often",
    ErrorCode.ILLEGAL_GENERATION: "the group has gone on without this member; poll more often",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer uses the same group_instance_id",
    ErrorCode.FENCED_MEMBER_EPOCH: "the group has gone on without this member; poll more often",
    ErrorCode.STALE_MEMBER_EPOCH: "the group has gone on without this member; poll more often",
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another consumer uses the same group_instance_id; one that was killed keeps it until its "
        "session times out"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "give a session_timeout_ms from the broker's group.min.session.timeout.ms to its "
        "group.max.session.timeout.ms: by default from 6000 to 1800000"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: "choose a group_remote_assignor that the broker has",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "raise the limit of the group's members at the broker",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "write the pattern as RE2 has it, such as 'flights-.*'",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "all members of a group need an assignor in common; a share group is read by "
        "ShareConsumer or 'tidelog share consume'"
    ),
    ErrorCode.PRODUCER_FENCED: "another producer uses the same transactional_id",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer uses the same transactional_id",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "choose a mechanism that the broker offers",
    ErrorCode.ILLEGAL_SASL_STATE: "the listener expects no user: leave the mechanism out",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "check the user name and the password, or the token",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _granted_by(
        "--user NAME --produce TOPIC or --consume TOPIC --group GROUP"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _granted_by(
        "--user NAME --consume TOPIC --group GROUP to read in it, --op OPERATION --group GROUP "
        "for other work, such as delete"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _granted_by(
        "--user NAME --produce TOPIC --transactional-id ID"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _granted_by(
        "--user NAME --produce TOPIC to produce, --admin to administer"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "the broker has no delegation tokens: set delegation.token.secret.key"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "log in with a password, a ticket or a certificate: a session of a token has no say in "
        "tokens, and neither has a client without a user"
    ),
    ErrorCode.SECURITY_DISABLED: "the broker has no authorizer: set authorizer.class.name",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another compression",
    ErrorCode.INVALID_CONFIG: "correct the named setting",
    ErrorCode.KAFKA_STORAGE_ERROR: (
        "look into the broker's log: its disk is full or has failed, the partition is in "
        "quarantine, or it may not write to its bucket"
    ),
}
