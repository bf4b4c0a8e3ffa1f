"""SaslHandshake (key 17): agree on a SASL mechanism.

It never became flexible: clients up to 2.4 could not have negotiated that (KAFKA-9577).

    =======  ====================================================
    version  change
    =======  ====================================================
    0        tokens follow outside of Kafka's framing
    1        tokens follow in SaslAuthenticate requests (KIP-152)
    =======  ====================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import STRING, Direction, array, int16, message, string


@message(ApiKey.SASL_HANDSHAKE, Direction.REQUEST, max_version=1)
@dataclass(slots=True, kw_only=True)
class SaslHandshakeRequest:
    """The mechanism the client wants."""

    mechanism: str = string()


@message(ApiKey.SASL_HANDSHAKE, Direction.RESPONSE, max_version=1)
@dataclass(slots=True, kw_only=True)
class SaslHandshakeResponse:
    """Agreement, or the mechanisms that are enabled."""

    error_code: int = int16()
    mechanisms: list[str] = array(STRING)
