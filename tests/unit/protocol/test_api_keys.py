"""Is the table of versions one that old and new clients can live with?"""

from __future__ import annotations

import pytest
from kio.schema.index import api_key_map

from protocol import registry
from protocol.api_keys import SUPPORTED, ApiKey, VersionRange
from protocol.declare.primitives import message_spec


def test_keys_are_those_of_kafka() -> None:
    # Kafka 4 removed the four keys between controller and brokers of the ZooKeeper era.
    living = {int(key): key.name.lower() for key in ApiKey if not 4 <= key <= 7}
    assert living == dict(api_key_map)


@pytest.mark.parametrize("key", SUPPORTED, ids=lambda key: key.name)
def test_advertised_range_starts_at_zero(key: ApiKey) -> None:
    # Version 0 of these was a preview in Kafka 4.0.
    is_share = key in range(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_ACKNOWLEDGE + 1)
    assert SUPPORTED[key].min == (1 if is_share else 0)


@pytest.mark.parametrize("key", SUPPORTED, ids=lambda key: key.name)
def test_advertised_range_is_declared(key: ApiKey) -> None:
    assert SUPPORTED[key].max <= message_spec(registry.request_class(key)).max_version


def test_table_is_in_key_order_and_read_only() -> None:
    assert list(SUPPORTED) == sorted(SUPPORTED)
    with pytest.raises(TypeError):
        SUPPORTED[ApiKey.VOTE] = VersionRange(0, 0)  # type: ignore[index]


@pytest.mark.parametrize(("version", "inside"), [(-1, False), (0, True), (3, True), (4, False)])
def test_range_includes_both_ends(version: int, inside: bool) -> None:
    assert (version in VersionRange(0, 3)) is inside


def test_range_reads_like_kafkas() -> None:
    assert str(VersionRange(0, 11)) == "0-11"
    assert str(VersionRange(0, 0)) == "0"
    assert "0" not in VersionRange(0, 3)
