"""Delegation tokens of a cluster: this part of the admin client.

Source: KIP-48, KIP-373.
"""

from collections.abc import Iterable
from typing import Any

from client.core.cluster import Cluster
from client.core.parts import check
from client.descriptions import DelegationToken
from protocol.api.create_delegation_token import CreateDelegationTokenRequest
from protocol.api.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.api.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.api.renew_delegation_token import RenewDelegationTokenRequest
from protocol.structs import TokenPrincipal

_USER = "User"
_OWNERS_SINCE = 3


class TokenAdmin:
    """The calls of `client.admin.Admin` about delegation tokens."""

    _cluster: Cluster

    async def create_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """A new delegation token of this client's user, or of another one.

        Raises:
            BrokerRefused: the broker has no tokens, or the client may not make this one.
        """
        renewers = tuple(renewers)
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else _USER,
            owner_principal_name=owner,
            renewers=[TokenPrincipal(principal_type=_USER, principal_name=r) for r in renewers],
            max_lifetime_ms=-1 if max_lifetime_ms is None else max_lifetime_ms,
        )
        made, address = await self._cluster.call_controller(
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

    async def tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """The delegation tokens that this client may see, with their secrets.

        Raises:
            BrokerRefused: the broker has no tokens, or the client has logged in with one.
        """
        asked = None
        if owners is not None:
            asked = [TokenPrincipal(principal_type=_USER, principal_name=owner) for owner in owners]
        request = DescribeDelegationTokenRequest(owners=asked)
        answer, address = await self._cluster.call_controller(request)
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

    async def renew_token(self, secret: bytes, *, period_ms: int | None = None) -> int:
        """Let a token expire later, by default after the broker's period; when it expires now.

        Raises:
            BrokerRefused: there is no such token, it has expired, or the client may not renew it.
        """
        period_ms = -1 if period_ms is None else period_ms
        request = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
        return await self._change(request, "renewing a delegation token")

    async def expire_token(self, secret: bytes, *, period_ms: int | None = None) -> int:
        """Remove a token, or let it expire after a period; when it expires now.

        Raises:
            BrokerRefused: there is no such token, it has expired, or the client may not do this.
        """
        period_ms = -1 if period_ms is None else period_ms
        request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
        return await self._change(request, "expiring a delegation token")

    async def _change(self, request: Any, what: str) -> int:
        answer, address = await self._cluster.call_controller(request)
        check(what, answer, address)
        return int(answer.expiry_timestamp_ms)


def _principal(kind: str, name: str) -> str:
    """The text of a principal; empty where an old broker does not say who it is."""
    return f"{kind}:{name}" if name else ""
