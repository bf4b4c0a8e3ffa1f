"""Delegation tokens of a cluster, for the admin client.

Source: KIP-48, KIP-373.
"""

from collections.abc import Iterable
from typing import Any

from client.core.cluster import Cluster
from client.core.parts import check
from client.descriptions import DelegationToken
from protocol.api.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from protocol.api.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from protocol.api.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.api.renew_delegation_token import RenewDelegationTokenRequest

_USER = "User"
_OWNERS_SINCE = 3


async def create_token(
    cluster: Cluster, owner: str | None, renewers: Iterable[str], max_lifetime_ms: int | None
) -> DelegationToken:
    """A new token with its secret.

    Raises:
        BrokerRefused: tokens are off, or the client may not make this one.
    """
    renewers = tuple(renewers)
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else _USER,
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type=_USER, principal_name=r) for r in renewers],
        max_lifetime_ms=-1 if max_lifetime_ms is None else max_lifetime_ms,
    )
    made, address = await cluster.call_controller(
        request, min_version=0 if owner is None else _OWNERS_SINCE
    )
    check("making a delegation token", made, address)
    return DelegationToken(
        id=made.token_id,
        secret=bytes(made.hmac),
        owner=_principal(made.principal_type, made.principal_name),
        requester=_principal(
            made.token_requester_principal_type, made.token_requester_principal_name
        ),
        renewers=tuple(_principal(_USER, renewer) for renewer in renewers),
        issued_ms=made.issue_timestamp_ms,
        expires_ms=made.expiry_timestamp_ms,
        max_ms=made.max_timestamp_ms,
    )


async def tokens(cluster: Cluster, owners: Iterable[str] | None) -> list[DelegationToken]:
    """The tokens that the client may see; None asks for those of every owner.

    Raises:
        BrokerRefused: tokens are off, or the client has logged in with one or not at all.
    """
    asked = None
    if owners is not None:
        asked = [
            DescribeDelegationTokenOwner(principal_type=_USER, principal_name=owner)
            for owner in owners
        ]
    request = DescribeDelegationTokenRequest(owners=asked)
    answer, address = await cluster.call_controller(request)
    check("listing delegation tokens", answer, address)
    return [
        DelegationToken(
            id=token.token_id,
            secret=bytes(token.hmac),
            owner=_principal(token.principal_type, token.principal_name),
            requester=_principal(
                token.token_requester_principal_type, token.token_requester_principal_name
            ),
            renewers=tuple(
                _principal(renewer.principal_type, renewer.principal_name)
                for renewer in token.renewers
            ),
            issued_ms=token.issue_timestamp,
            expires_ms=token.expiry_timestamp,
            max_ms=token.max_timestamp,
        )
        for token in answer.tokens
    ]


async def renew_token(cluster: Cluster, secret: bytes, period_ms: int | None) -> int:
    """When the token expires now.

    Raises:
        BrokerRefused: there is none with this secret, it has expired, or it is not the client's.
    """
    period_ms = -1 if period_ms is None else period_ms
    request = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
    return await _change(cluster, request, "renewing a delegation token")


async def expire_token(cluster: Cluster, secret: bytes, period_ms: int | None) -> int:
    """When the token expires now; without a period it is removed.

    Raises:
        BrokerRefused: there is none with this secret, it has expired, or it is not the client's.
    """
    period_ms = -1 if period_ms is None else period_ms
    request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
    return await _change(cluster, request, "expiring a delegation token")


async def _change(cluster: Cluster, request: Any, what: str) -> int:
    answer, address = await cluster.call_controller(request)
    check(what, answer, address)
    return int(answer.expiry_timestamp_ms)


def _principal(kind: str, name: str) -> str:
    """The text of a principal; empty where an old broker does not say who it is."""
    return f"{kind}:{name}" if name else ""
