"""Copies of a window's records in another topic, a page at a time.

The browser asks for one page after the other, so that it can show how far the copy is, and stop it.
The cursor is that of `console.data.records`: what was copied is not copied again.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from client.errors import ClientError, InvalidUse
from client.types import ConsumerRecord
from console.data.hub import Hub
from console.data.records import Window, find_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where copies go.

    Attributes:
        topic: its name; it has to exist.
        keeps_time: whether a copy has its record's time, or the present.
        is_dry: whether records are only counted.
    """

    topic: str
    keeps_time: bool
    is_dry: bool


async def copy_page(
    hub: Hub, window: Window, target: Target, cursor: Mapping[int, int] | None
) -> dict[str, Any]:
    """Copy one page; `copied` says how many records, `cursor` where the next page starts.

    Keys, values and headers stay; the partition is that of the key, as a producer chooses it.
    Where the brokers refuse some, `error` has the first reason, and there is no next page.

    Raises:
        InvalidUse: the target is the source, which would find its own copies.
    """
    if target.topic == window.topic:
        raise InvalidUse(f"target={target.topic} is the source itself: choose another topic")
    await hub.partitions(target.topic)  # an unknown topic is not created
    records, found = await find_records(hub, window, cursor)
    failures: list[BaseException] = []
    if not target.is_dry:
        failures = await _produce(hub, target, records)
    return {
        "copied": len(records) - len(failures),
        "failed": len(failures),
        "error": str(failures[0]) if failures else None,
        "cursor": None if failures else found["cursor"],
        "offsets_left": found["offsets_left"],
        "partitions_left_out": found["partitions_left_out"],
    }


async def _produce(
    hub: Hub, target: Target, records: list[ConsumerRecord]
) -> list[BaseException]:
    """Write the records; the errors of those that the brokers refused."""
    now_ms = await hub.now_ms()
    deliveries = []
    async with hub.producer() as producer:
        try:
            for record in records:
                kept_ms = record.timestamp_ms if record.timestamp_ms >= 0 else now_ms
                sent = await producer.send(
                    target.topic,
                    record.value,
                    key=record.key,
                    timestamp_ms=kept_ms if target.keeps_time else now_ms,
                    headers=record.headers,
                )
                deliveries.append(sent)
            await producer.flush()
        except ClientError as error:
            done = await asyncio.gather(*deliveries, return_exceptions=True)
            failed = [one for one in done if isinstance(one, BaseException)]
            return [*failed, *[error] * (len(records) - len(deliveries))]
        done = await asyncio.gather(*deliveries, return_exceptions=True)
    return [one for one in done if isinstance(one, BaseException)]
