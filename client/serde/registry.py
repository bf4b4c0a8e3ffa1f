"""A schema registry with Confluent's interface, asked over HTTP.

One URL from the user; only numbers and names of subjects are added to it, redirects are not
followed, and answers are bounded, so that a record cannot choose what is requested. A schema of an
id never changes, so it is kept.

Source: Confluent Schema Registry API reference, v1.
"""

import base64
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from client.core.options import Security
from client.core.tls import is_loopback, tls_context
from client.errors import InvalidUse
from client.serde.errors import BadSchema, NoSuchSchema, RegistryUnreachable

AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
JSON: Final = "JSON"
KINDS: Final = (AVRO, PROTOBUF, JSON)
LATEST: Final = "latest"

TIMEOUT_S: Final = 5.0
ANSWER_BYTES: Final = 1024 * 1024
KEPT_MAX: Final = 1000
FILES_MAX: Final = 64
"""Schemas that a schema may import, directly or by others."""
SERIALIZED: Final = "?format=serialized"

_NOT_FOUND: Final = 404
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAddress:
    """Where a registry is, and who asks it.

    Attributes:
        url: ``http://HOST:PORT`` or ``https://HOST:PORT``, with a path if it has one.
        username: for basic authentication, with `password`; empty: without.
        password: of the user.
        token: a bearer token instead of a user.
        ca_file: PEM file of the authorities to trust; empty: those of the system.
    """

    url: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca_file: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be asked, and secrets that would leave this machine readable.

        Raises:
            InvalidUse: with the field, its value and the cure.
        """
        try:
            parts = urlsplit(self.url)
            parts.port  # noqa: B018 - reading it checks it
        except ValueError as error:
            raise InvalidUse(f"registry url {self.url!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise InvalidUse(f"registry url {self.url!r}: write http://HOST:PORT or https://HOST")
        if parts.username is not None:
            raise InvalidUse(
                f"registry url of {parts.hostname} names a user: give username and password"
            )
        if self.token and self.username:
            raise InvalidUse(f"username={self.username!r} and token: give one of the two")
        is_readable = parts.scheme == "http"
        if is_readable and self.ca_file:
            raise InvalidUse(f"ca_file={self.ca_file!r} has no effect on {self.url}: write https")
        if is_readable and (self.username or self.token) and not is_loopback(parts.hostname):
            raise InvalidUse(f"registry url {self.url!r} would send a secret readable: write https")

    @property
    def authorization(self) -> str | None:
        """The header Authorization, None without a user."""
        if self.token:
            return f"Bearer {self.token}"
        if self.username:
            pair = f"{self.username}:{self.password}".encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        return None


class Import(NamedTuple):
    """A schema that another one imports under `name`."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """A schema of the registry.

    Attributes:
        kind: one of `KINDS`, or another that the registry knows.
        text: the schema; of PROTOBUF its descriptor in base64.
        imports: the schemas that it imports.
        number: its id; 0 where it was not asked for by a subject or an id.
    """

    kind: str
    text: str
    imports: tuple[Import, ...] = ()
    number: int = 0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse to follow."""


class Registry:
    """Asks one registry, and keeps what it answered; threads may share it."""

    def __init__(self, address: RegistryAddress) -> None:
        """Ask `address`; nothing is sent yet."""
        self._address = address
        self._url = address.url.rstrip("/")
        self._kept: dict[str, Schema] = {}
        handlers: list[urllib.request.BaseHandler] = [
            _NoRedirect(), urllib.request.ProxyHandler({})
        ]  # fmt: skip
        if self._url.startswith("https:"):
            context = tls_context(Security(tls=True, ca_file=address.ca_file))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def schema(self, number: int) -> Schema:
        """The schema of an id.

        Raises:
            NoSuchSchema: the registry has none of this id.
            RegistryUnreachable: it gave no answer.
            BadSchema: what answered is no registry.
        """
        return self._find(f"/schemas/ids/{int(number)}")._replace(number=int(number))

    def version(self, subject: str, version: int | str = LATEST) -> Schema:
        """A version of a subject, by default its latest; raises as `schema`."""
        name = version if version == LATEST else int(version)
        path = f"/subjects/{quote(subject, safe='')}/versions/{name}"
        if name == LATEST:
            # The only path whose answer changes.
            self._kept.pop(path, None)
        return self._find(path)

    def register(self, subject: str, schema: Schema) -> int:
        """The id of a schema under a subject, which it becomes a version of if it is none.

        Raises:
            BadSchema: the registry refuses it, such as one that its rules call incompatible.
            RegistryUnreachable: it gave no answer.
        """
        document = {
            "schema": schema.text,
            "schemaType": schema.kind,
            "references": [one._asdict() for one in schema.imports],
        }
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self._ask(path, json.dumps(document).encode())
        if not isinstance(answer.get("id"), int):
            raise BadSchema(f"{self._url} is no schema registry: it answered without an id")
        return int(answer["id"])

    def files_of(self, schema: Schema) -> list[tuple[str, str]]:
        """Names and texts of all that a schema imports, in that order, and of itself ("").

        Raises:
            NoSuchSchema: the registry lacks one.
            BadSchema: there are too many, or they import each other.
        """
        files: dict[str, str] = {}

        def add(inner: Schema, depth: int) -> None:
            if depth > FILES_MAX or len(files) > FILES_MAX:
                raise BadSchema(f"it imports more than {FILES_MAX} others")
            for name, subject, version in inner.imports:
                if name not in files:
                    found = self.version(subject, version)
                    add(found, depth + 1)
                    files[name] = found.text

        add(schema, 0)
        return [*files.items(), ("", schema.text)]

    def _find(self, path: str) -> Schema:
        kept = self._kept.get(path)
        if kept is None:
            kept = self._parse(self._ask(path))
            if kept.kind == PROTOBUF:
                kept = self._parse(self._ask(path + SERIALIZED))
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[path] = kept
        return kept

    def _ask(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._url}{path}", body)
        request.add_header("Accept", _CONTENT_TYPE)
        if body is not None:
            request.add_header("Content-Type", _CONTENT_TYPE)
        if self._address.authorization is not None:
            # Not sent again elsewhere: redirects are refused.
            request.add_unredirected_header("Authorization", self._address.authorization)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                found = answer.read(ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(path, error) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RegistryUnreachable(f"registry {self._url} gave no answer: {reason}") from error
        if len(found) > ANSWER_BYTES:
            raise BadSchema(f"the registry's answer is larger than {ANSWER_BYTES} bytes")
        try:
            document = json.loads(found)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise BadSchema(f"{self._url} is no schema registry: its answer is no JSON object")
        return document

    def _refusal(self, path: str, error: urllib.error.HTTPError) -> Exception:
        what = f"the registry answered {path} with status {error.code}"
        try:
            detail = json.loads(error.read(ANSWER_BYTES))["message"]
        except (OSError, ValueError, KeyError, TypeError):
            detail = error.reason
        sentence = f"{what}: {detail}"
        if error.code == _NOT_FOUND:
            return NoSuchSchema(sentence)
        # Conflicts and schemas that are none: the same request fails again.
        if error.code in (409, 422):
            return BadSchema(sentence)
        return RegistryUnreachable(sentence)

    def _parse(self, document: dict[str, Any]) -> Schema:
        if not isinstance(document.get("schema"), str):
            raise BadSchema(f"{self._url} is no schema registry: it answered without a schema")
        try:
            imports = tuple(
                Import(str(one["name"]), str(one["subject"]), int(one["version"]))
                for one in document.get("references") or ()
            )
            number = int(document.get("id") or 0)
        except (TypeError, KeyError, ValueError):
            raise BadSchema("the registry's references or id have another form") from None
        return Schema(str(document.get("schemaType") or AVRO), document["schema"], imports, number)
