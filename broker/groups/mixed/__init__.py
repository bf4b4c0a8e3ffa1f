"""Groups with members of both protocols, for rolling upgrades and downgrades (KIP-848).

Owns how a classic member takes part in a consumer group and when a group changes its protocol.
Imports both state machines; neither of them imports it.
"""
