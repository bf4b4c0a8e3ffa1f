"""What every request passes before it reaches a page: host, login, origin, size; and the headers of
every answer, also of those that a defect has made.

A page of another site can make a browser here send requests, also under a name of its own that
resolves to this machine. So the Host must be one of ours, and a change needs a header that such a
page cannot send without being asked first, and an Origin that is ours. What is refused is a line of
the audit log.
"""

import asyncio
import base64
import binascii
import json
import secrets
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.options import ConsoleOptions
from console.web.audit import RefusedRequests
from console.web.users import Logins

BODY_BYTES: Final = 2 * 1024 * 1024
CHANGE_HEADER: Final = "x-tidelog-console"

POLICY: Final = (
    "default-src 'self'; frame-ancestors 'none'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "geolocation=(), camera=(), microphone=()",
}

_SAFE: Final = ("GET", "HEAD")


class Refusal(Exception):
    """A request that reaches no page: status, sentence, more headers."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        """Keep them."""
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}


class Headed:
    """Wraps the application and what answers for its defects: each answer gets `HEADERS`."""

    def __init__(self, app: ASGIApp) -> None:
        """Put the headers on the answers of `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(6)
        scope.setdefault("state", {}).update(request_id=request_id, user="")

        async def send_headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers["X-Request-Id"] = request_id
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        await self._app(scope, receive, send_headed)


class Guard:
    """Wraps the pages and questions."""

    def __init__(self, app: ASGIApp, options: ConsoleOptions) -> None:
        """Guard `app` as the options say."""
        self._app = app
        self._hosts = {host.lower() for host in options.allowed_hosts}
        self._logins = None if options.users is None else Logins(options.users)
        self._one_at_a_time = asyncio.Lock()
        self._refused = RefusedRequests()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._check(scope)
            await self._app(scope, _bounded(receive), send)
        except Refusal as refusal:
            name, _ = _credentials(Headers(scope=scope).get("authorization", ""))
            self._refused.write(scope, name, refusal.status, refusal.sentence)
            await _refuse(refusal, scope["state"]["request_id"], send)

    async def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise Refusal(
                421, "This console does not answer to that host name: see --allowed-hosts."
            )
        scope["state"]["user"] = await self._user(scope, headers)
        if scope["method"] in _SAFE:
            return
        if headers.get(CHANGE_HEADER) != "1":
            raise Refusal(403, "A change needs the header X-Tidelog-Console: 1.")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host:
            raise Refusal(403, "A change must come from a page of this console.")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Refusal(415, "A change is JSON: send Content-Type: application/json.")

    async def _user(self, scope: Scope, headers: Headers) -> str:
        """The name of who asks, "" where no login is asked for.

        Raises:
            Refusal: no user, or a wrong password.
        """
        if self._logins is None:
            return ""
        address = scope["client"][0] if scope.get("client") else ""
        challenge = {"WWW-Authenticate": 'Basic realm="tidelog console", charset="UTF-8"'}
        name, password = _credentials(headers.get("authorization", ""))
        if not name:
            raise Refusal(401, "Log in with a user of this console.", challenge)
        if self._logins.is_known(name, password):
            return name
        async with self._one_at_a_time:
            # In here: guesses that wait for their turn count the wrong ones before them.
            if self._logins.is_blocked(address):
                raise Refusal(
                    429, "Too many wrong passwords: wait a minute.", {"Retry-After": "60"}
                )
            is_right = await asyncio.to_thread(self._logins.check, address, name, password)
        if not is_right:
            raise Refusal(401, "That is no user of this console, or not the password.", challenge)
        return name


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password


def _bounded(receive: Receive) -> Receive:
    """The same body, refused when it grows beyond `BODY_BYTES`."""
    size = 0

    async def receive_bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES:
            raise Refusal(413, f"A request has at most {BODY_BYTES} bytes.")
        return message

    return receive_bounded


async def _refuse(refusal: Refusal, request_id: str, send: Send) -> None:
    body = json.dumps({"error": refusal.sentence, "request_id": request_id}).encode()
    headers = {"content-type": "application/json", **refusal.headers}
    await send(
        {
            "type": "http.response.start",
            "status": refusal.status,
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})
