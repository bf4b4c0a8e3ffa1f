"""The gate in front of the dispatcher on a SASL listener.

Every frame of such a connection passes here until its client is authenticated, and afterwards as
long as sessions have a lifetime. The gate looks at the key of a request alone, before anything is
decoded. What it lets through is dispatched like any other request; tokens without a request header
(SaslHandshake v0) are the one thing that it serves itself.

Differs from Kafka: the refusal of a request in the middle of authentication, the last answer of its
connection, repeats no topics of the request.

Source: Kafka `SaslServerAuthenticator.authenticate`. Read next: `broker.security.sasl`.
"""

from typing import TYPE_CHECKING, Any, Final

from broker.errors import ConnectionMustClose
from broker.net.dispatch import Dispatcher, Exchange, Requester
from broker.requests.authentication import authenticate, close_after, refuse
from broker.security.mechanism import AuthenticationFailed
from broker.security.sasl import Admission, SaslSession, SaslState
from broker.security.session import Session
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps

if TYPE_CHECKING:
    from protocol.declare.primitives import Buffer

_ERROR_AT: Final = 8
"""Where the answer to ApiVersions, of any version, has its error code."""


class SaslGate:
    """Decides which frames of one connection reach the dispatcher."""

    __slots__ = ("_context", "_dispatcher", "_sasl", "_session")

    def __init__(self, dispatcher: Dispatcher, session: Session) -> None:
        """Guard `dispatcher` for the client of `session`."""
        assert session.sasl is not None
        self._context = dispatcher.context
        self._dispatcher = dispatcher
        self._session = session
        self._sasl: SaslSession = session.sasl

    def dispatch(
        self, frame: bytearray | memoryview, requester: Requester
    ) -> "list[Buffer] | Exchange | None":
        """As `Dispatcher.dispatch`, for a client whose identity is not proved yet.

        Raises:
            ConnectionMustClose: the client may not send this now.
            ProtocolError: the frame cannot be answered.
        """
        sasl = self._sasl
        if sasl.state is SaslState.RAW:
            reply = self._context.turns.begin(self._serve_token(bytes(frame)))
            return self._dispatcher.answer_bare(ApiKey.SASL_AUTHENTICATE, reply)
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        admission = sasl.admit(api_key, self._context.clock.monotonic_ms())
        if admission is Admission.SERVE:
            outcome = self._dispatcher.dispatch(frame, requester)
            if api_key == ApiKey.API_VERSIONS and isinstance(outcome, list):
                answer = b"".join(outcome)
                if answer[_ERROR_AT : _ERROR_AT + 2] == b"\0\0":
                    sasl.versions_answered()
            return outcome
        if admission is Admission.CLOSE:
            if sasl.is_authenticated:
                self._context.metrics.sessions_expired[self._session.listener] += 1
            raise ConnectionMustClose(
                "the session has expired"
                if sasl.is_authenticated
                else f"request {api_key} came before authentication"
            )
        reason = f"request {api_key} came in the middle of authentication"
        return self._dispatcher.answer_error(
            frame,
            ErrorCode.ILLEGAL_SASL_STATE,
            lambda answer: close_after(self._context, self._session, reason, answer),
        )

    def _serve_token(self, token: bytes) -> Steps[Any]:
        try:
            result = yield from authenticate(self._context, self._session, token)
        except AuthenticationFailed as error:
            must_close = ConnectionMustClose(f"authentication failed: {error.reason}")
            return refuse(self._context, self._session, error, must_close)
        return result.token
