"""SASL between a request and the state machine: run a token, or refuse after a delay.

A failed authentication is answered late (`connection.failed.authentication.delay.ms`, and later for
an address that fails again and again), and the connection closes right after the answer, so that
guessing passwords is slow. What the client sent after the failed request is never served.

Source: Kafka `SaslServerAuthenticator`, `Selector.DelayedAuthenticationFailureClose`.
"""

from collections import Counter
from typing import Any

from broker.replies.pending import Pending
from broker.requests.context import Context
from broker.security.mechanism import AuthenticationFailed, SaslExchange, Step
from broker.security.sasl import Authenticated
from broker.security.session import Session
from storage.disk.steps import Steps, off_loop


def authenticate(context: Context, session: Session, token: bytes) -> Steps[Authenticated]:
    """Take one token of the client; slow mechanisms compute in the side thread.

    Raises:
        AuthenticationFailed: the exchange has failed; answer with `refuse`.
    """
    sasl = session.sasl
    assert sasl is not None
    exchange = sasl.begin_token()
    if exchange.is_slow:
        outcome = yield from off_loop(lambda: _outcome(exchange, token))
    else:
        outcome = _outcome(exchange, token)
    if isinstance(outcome, AuthenticationFailed):
        raise outcome
    if outcome.refusal:  # a client that disconnects instead of acknowledging it has failed too
        _note_failure(context, session, outcome.refusal)
    was_authenticated = sasl.is_authenticated
    result = sasl.stepped(
        outcome, now_ms=context.clock.monotonic_ms(), wall_ms=context.clock.wall_ms()
    )
    if result.is_done:
        _counter(context, is_again=was_authenticated)[session.listener, sasl.mechanism, "ok"] += 1
        if was_authenticated:
            context.metrics.observe_reauthentication(session.listener, result.elapsed_ms)
        context.security.audit.authenticated(session, sasl.mechanism, again=was_authenticated)
        session.on_authenticated()
    return result


def _outcome(exchange: SaslExchange, token: bytes) -> Step | AuthenticationFailed:
    try:
        return exchange.step(token)
    except AuthenticationFailed as error:
        return error


def refuse(
    context: Context, session: Session, error: AuthenticationFailed, answer: Any | BaseException
) -> Pending[Any]:
    """Answer with `answer`, or fail with it, after the delay; the connection closes then."""
    if not error.is_noted:
        _note_failure(context, session, error.reason)
    return close_after(context, session, f"authentication failed: {error.reason}", answer)


def _note_failure(context: Context, session: Session, reason: str) -> None:
    sasl = session.sasl
    assert sasl is not None
    name = sasl.exchange.claimed_name if sasl.exchange is not None else ""
    counter = _counter(context, is_again=sasl.is_authenticated)
    counter[session.listener, sasl.mechanism or "none", "failed"] += 1
    context.security.audit.login_failed(
        session.peer_host,
        sasl.mechanism or "no mechanism",
        session.listener,
        reason,
        # Names of unknown users are not written down: people type passwords into this field.
        name if name and context.security.credentials.has_user(name) else "",
        session.client_id,
    )


def _counter(context: Context, *, is_again: bool) -> Counter[tuple[str, str, str]]:
    metrics = context.metrics
    return metrics.reauthentications if is_again else metrics.authentications


def close_after(
    context: Context, session: Session, reason: str, answer: Any | BaseException
) -> Pending[Any]:
    """`answer` after the delay for failures, as the last one of the connection."""
    pending: Pending[Any] = Pending()

    def deliver() -> None:
        session.on_failed(reason)
        if isinstance(answer, BaseException):
            pending.fail(answer)
        else:
            pending.resolve(answer)

    delay_ms = context.security.failures.count(session.peer_host)
    pending.on_abandon = context.clock.call_later(delay_ms, deliver).cancel
    return pending
