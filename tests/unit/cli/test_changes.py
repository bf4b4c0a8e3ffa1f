"""What a refused change of settings is answered with."""

from collections.abc import Mapping

import pytest

from cli.changes import change_settings
from cli.failures import CommandFailed
from client.errors import BrokerRefused
from protocol.error_codes import ErrorCode

WRONG = BrokerRefused("changing t", ErrorCode.INVALID_CONFIG, detail="a = 'x' is no number")
UNSEEN = BrokerRefused("reading t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def changed(known: Mapping[str, object] | BrokerRefused) -> None:
    async def ask() -> Mapping[str, object]:
        if isinstance(known, BrokerRefused):
            raise known
        return known

    async def change() -> None:
        raise WRONG

    await change_settings(ask, change, (), ["a"], "topics", "the list")


async def test_the_refusal_counts_where_the_settings_may_not_be_read() -> None:
    for known in (UNSEEN, {"a": 1}):
        with pytest.raises(BrokerRefused) as refused:
            await changed(known)
        assert refused.value is WRONG
    with pytest.raises(CommandFailed, match="topics have no setting a; see the list"):
        await changed({})
