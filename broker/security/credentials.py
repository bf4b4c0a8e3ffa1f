"""SCRAM credentials of all users: an index in memory over documents of the metadata journal.

A document has the kind `scram` and the key `MECHANISM/user`; its value is
`{"salt": B64, "stored": B64, "server": B64, "iterations": N}`. A document of another shape refuses
the start: a broker that cannot read who may log in must not guess.

A change is planned here (`plan_alterations`, pure, with Kafka's error codes), made durable by the
journal, and then taken over (`apply`). So a change is visible only after it is on disk.

Source: KIP-554; Kafka `ScramControlManager`.
"""

import base64
import hmac
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple

from broker.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    SCRAM_BY_NAME,
    ScramCredential,
    ScramMechanism,
    credential_of_salted_password,
    unknown_user_credential,
)
from protocol.error_codes import ErrorCode
from values.dataclasses import dataclass

KIND_SCRAM: Final = "scram"
KIND_SECURITY: Final = "security"
KEY_SECRET: Final = "unknown-user-secret"
"""The document with the secret from which salts of unknown users are derived."""

Document = dict[str, Any] | None
"""A value of the journal; None removes it."""


class UnreadableCredential(ValueError):
    """A document that is not a credential; the message names its key."""


def document_key(mechanism: ScramMechanism, name: str) -> str:
    """The key of a user's credential in the journal."""
    return f"{mechanism.sasl_name}/{name}"


def format_credential(credential: ScramCredential) -> dict[str, Any]:
    """The document that `parse_credential` reads back."""
    return {
        "salt": base64.b64encode(credential.salt).decode(),
        "stored": base64.b64encode(credential.stored_key).decode(),
        "server": base64.b64encode(credential.server_key).decode(),
        "iterations": credential.iterations,
    }


def _is_name(text: str) -> bool:
    """Whether a user may have this name: there is text, which the protocol can carry."""
    return bool(text) and not any("\ud800" <= char <= "\udfff" for char in text)


def parse_credential(key: str, document: object) -> tuple[ScramMechanism, str, ScramCredential]:
    """The mechanism, user and credential of one document.

    Raises:
        UnreadableCredential: the key or the value is of another shape.
    """
    mechanism_name, _, name = key.partition("/")
    mechanism = SCRAM_BY_NAME.get(mechanism_name)
    match document:
        case {
            "salt": str(salt),
            "stored": str(stored),
            "server": str(server),
            "iterations": int(n),
        }:
            try:
                values = [base64.b64decode(text, validate=True) for text in (salt, stored, server)]
            except ValueError:  # no base64, or no ASCII
                values = []
            if mechanism is not None and _is_name(name) and values and n > 0:
                return (
                    mechanism,
                    name,
                    ScramCredential(
                        salt=values[0], stored_key=values[1], server_key=values[2], iterations=n
                    ),
                )
    raise UnreadableCredential(f"the credential {key!r} in the metadata journal is unreadable")


def problem_with(mechanism: ScramMechanism, credential: ScramCredential) -> str | None:
    """What is wrong with a credential that comes from elsewhere, without its keys; or None."""
    if not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
        return (
            f"iterations = {credential.iterations}; the range is {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX}"
        )
    size = mechanism.digest_size
    if {len(credential.stored_key), len(credential.server_key)} != {size}:
        return f"stored and server have {size} bytes each"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Remove a user's credential for one mechanism (a number, maybe unknown)."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsertion:
    """Set a user's credential for one mechanism (a number, maybe unknown)."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one user's alteration."""

    name: str
    code: int = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Changes to make durable together, and the answer once they are."""

    documents: Mapping[str, Document]
    outcomes: Sequence[Outcome]


class _Look(NamedTuple):
    """What a client can find out about the credential of a name: it sees it, or measures it."""

    mechanism: ScramMechanism
    iterations: int
    salt_bytes: int


class Credentials:
    """The credentials in force. Loop thread only, but `of` may be called from any thread."""

    def __init__(self, documents: Mapping[str, object], *, secret: bytes) -> None:
        """Index the journal's documents by mechanism and user.

        Args:
            documents: the journal's documents of kind `scram`, by key.
            secret: at least 16 random bytes that stay the same for this data directory.

        Raises:
            UnreadableCredential: a document is not a credential.
        """
        assert len(secret) >= 16
        self._secret = secret
        self._looks: dict[ScramMechanism | None, list[_Look]] = {}
        # By mechanism, then by name: to compare a text that is found with its key takes next to no
        # time, to compare a pair would show which users there are.
        self._known: dict[ScramMechanism, dict[str, ScramCredential]] = {
            mechanism: {} for mechanism in ScramMechanism
        }
        self._decoy: ScramCredential | None = None
        for key, document in documents.items():
            mechanism, name, credential = parse_credential(key, document)
            self._known[mechanism][name] = credential
        self._note_looks()

    def __len__(self) -> int:
        """How many credentials there are; a user may have one for each mechanism."""
        return sum(map(len, self._known.values()))

    def of(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """The credential of a user, or for an unknown one a credential that no password fits."""
        # Both are looked for, so that the time does not say which one it was.
        unknown = self._unknown(self._look(mechanism, mechanism, name), name)
        found = self._known[mechanism].get(name, unknown)
        # Kept until the next call: to free it takes time, which only known users would spend here.
        self._decoy = unknown
        return found

    def for_password(self, name: str) -> tuple[ScramMechanism, ScramCredential]:
        """The credential against which a password in clear is checked."""
        look = self._look(None, ScramMechanism.SCRAM_SHA_512, name)
        mechanism, found = look.mechanism, (unknown := self._unknown(look, name))
        for tried in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            known = self._known[tried].get(name)
            if known is not None:
                mechanism, found = tried, known
        self._decoy = unknown  # as in `of`
        return mechanism, found

    def _look(self, asked: ScramMechanism | None, default: ScramMechanism, name: str) -> "_Look":
        """What the credential of the unknown user `name` shows.

        The looks of known users are dealt out to names as often as users have them, so what a
        client sees or measures does not say that a name is unknown. A change of users moves few
        names to another look.
        """
        looks = self._looks.get(asked)
        if not looks:
            return _Look(default, ITERATIONS_MIN, SALT_BYTES)
        dealt = hmac.digest(self._secret, f"look/{name}".encode(), "sha256")
        return looks[int.from_bytes(dealt[:8], "big") * len(looks) >> 64]

    def _unknown(self, look: "_Look", name: str) -> ScramCredential:
        return unknown_user_credential(
            look.mechanism, name, self._secret, look.iterations, look.salt_bytes
        )

    def _note_looks(self) -> None:
        """Keep the looks of known users, by mechanism, and under None those for PLAIN."""
        looks: dict[ScramMechanism | None, list[_Look]] = {None: []}
        strongest = ScramMechanism.SCRAM_SHA_512
        for mechanism, users in self._known.items():
            for name, credential in users.items():
                look = _Look(mechanism, credential.iterations, len(credential.salt))
                looks.setdefault(mechanism, []).append(look)
                if mechanism is strongest or name not in self._known[strongest]:
                    looks[None].append(look)
        self._looks = {asked: sorted(found) for asked, found in looks.items()}

    def has_user(self, name: str) -> bool:
        """Whether a user of this name has any credential."""
        return any(name in users for users in self._known.values())

    def users(self) -> dict[str, list[tuple[ScramMechanism, int]]]:
        """The mechanisms and iterations of every user, in order of names."""
        found: dict[str, list[tuple[ScramMechanism, int]]] = {}
        for name in sorted(set().union(*self._known.values())):
            found[name] = [
                (mechanism, users[name].iterations)
                for mechanism, users in self._known.items()
                if name in users
            ]
        return found

    def plan_alterations(
        self, deletions: Iterable[Deletion], upsertions: Iterable[Upsertion]
    ) -> Plan:
        """What an AlterUserScramCredentials request changes; a user's changes are all or none."""
        deletions, upsertions = list(deletions), list(upsertions)
        outcomes: dict[str, Outcome] = {}
        documents: dict[str, Document] = {}
        asked = Counter(deletion.name for deletion in deletions)
        asked.update(upsertion.name for upsertion in upsertions)
        for deletion in deletions:
            code, message = self._complaint_about_deletion(deletion)
            outcomes[deletion.name] = Outcome(name=deletion.name, code=code, message=message)
            if code == ErrorCode.NONE:
                documents[document_key(ScramMechanism(deletion.mechanism), deletion.name)] = None
        for upsertion in upsertions:
            if upsertion.name in outcomes and outcomes[upsertion.name].code:
                continue
            code, message = _complaint_about_upsertion(upsertion)
            outcomes[upsertion.name] = Outcome(name=upsertion.name, code=code, message=message)
            if code == ErrorCode.NONE:
                mechanism = ScramMechanism(upsertion.mechanism)
                documents[document_key(mechanism, upsertion.name)] = format_credential(
                    credential_of_salted_password(
                        mechanism,
                        upsertion.salted_password,
                        salt=upsertion.salt,
                        iterations=upsertion.iterations,
                    )
                )
        for name, outcome in outcomes.items():
            if asked[name] > 1 and outcome.code == ErrorCode.NONE:
                outcomes[name] = Outcome(
                    name=name,
                    code=ErrorCode.DUPLICATE_RESOURCE,
                    message="A user credential cannot be altered twice in the same request",
                )
        refused = {name for name, outcome in outcomes.items() if outcome.code}
        return Plan(
            documents={
                key: document
                for key, document in documents.items()
                if key.partition("/")[2] not in refused
            },
            outcomes=list(outcomes.values()),
        )

    def apply(self, documents: Mapping[str, Document]) -> None:
        """Take over changes that are durable."""
        for key, document in documents.items():
            if document is None:
                mechanism_name, _, name = key.partition("/")
                self._known[SCRAM_BY_NAME[mechanism_name]].pop(name, None)
            else:
                mechanism, name, credential = parse_credential(key, document)
                self._known[mechanism][name] = credential
        self._note_looks()

    def _complaint_about_deletion(self, deletion: Deletion) -> tuple[int, str | None]:
        if not deletion.name:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
        if deletion.mechanism not in ScramMechanism.__members__.values():
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
        if deletion.name not in self._known[ScramMechanism(deletion.mechanism)]:
            return (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return ErrorCode.NONE, None


def _complaint_about_upsertion(upsertion: Upsertion) -> tuple[int, str | None]:
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    if not upsertion.name:
        return unacceptable, "Username must not be empty"
    if upsertion.mechanism not in ScramMechanism.__members__.values():
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if upsertion.iterations < ITERATIONS_MIN:
        return unacceptable, f"Too few iterations: {upsertion.iterations} < {ITERATIONS_MIN}"
    if upsertion.iterations > ITERATIONS_MAX:
        return unacceptable, f"Too many iterations: {upsertion.iterations} > {ITERATIONS_MAX}"
    if not upsertion.salted_password:
        return unacceptable, "The salted password must not be empty"
    return ErrorCode.NONE, None
