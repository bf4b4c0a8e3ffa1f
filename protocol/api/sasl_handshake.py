"""SaslHandshake (key 17): agree on a SASL mechanism.

It never became flexible: clients up to 2.4 could not have negotiated that (KAFKA-9577).

| version | change                                               |
|---------|------------------------------------------------------|
| 0       | tokens follow outside of Kafka's framing             |
| 1       | tokens follow in SaslAuthenticate requests (KIP-152) |
"""

from protocol.declare import primitives as wire


class SaslHandshakeRequest(wire.Message, max_version=1):
    """The mechanism the client wants."""

    mechanism: str = wire.string()


class SaslHandshakeResponse(wire.Message, max_version=1):
    """Agreement, or the mechanisms that are enabled."""

    error_code: int = wire.int16()
    mechanisms: list[str] = wire.array(wire.STRING)
