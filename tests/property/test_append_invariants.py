"""Whatever is appended: what was accepted is stored soundly, what was refused left no trace."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch, build_message_set
from protocol.records.layout import INT64_MAX, Codec, TimestampType
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from storage.append.plan import AppendRules, plan_append
from storage.errors import (
    InvalidRecord,
    InvalidTimestamp,
)

NOW = 10_000
ROWS = st.lists(
    st.tuples(
        st.one_of(st.integers(-1, 20_000), st.sampled_from([-1, 0, INT64_MAX])),
        st.one_of(st.none(), st.binary(max_size=8)),
        st.one_of(st.none(), st.binary(max_size=60)),
    ),
    min_size=1,
    max_size=6,
)
RULES = st.builds(
    AppendRules,
    timestamp_type=st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
    timestamp_before_max_ms=st.sampled_from([INT64_MAX, 5000]),
    timestamp_after_max_ms=st.sampled_from([INT64_MAX, 5000]),
    codec=st.one_of(st.none(), st.sampled_from(list(Codec))),
    compacted=st.booleans(),
)


@settings(max_examples=200)
@given(
    rows=ROWS,
    rules=RULES,
    magic=st.sampled_from([0, 1, 2]),
    codec=st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]),
    next_offset=st.integers(0, 2**50),
)
def test_plan_is_the_model(
    rows: list[tuple[int, Any, Any]],
    rules: AppendRules,
    magic: int,
    codec: Codec,
    next_offset: int,
) -> None:
    records = [Record(i, *row) for i, row in enumerate(rows)]
    made = (
        build_batch(records, codec=codec)
        if magic == 2
        else build_message_set(records, magic, codec)
    )
    sent = bytearray(made)
    seen = [record if magic else record._replace(timestamp=-1) for record in records]
    in_window = [
        rules.stamps
        or record.timestamp == -1
        or NOW - rules.timestamp_before_max_ms
        <= record.timestamp
        <= NOW + rules.timestamp_after_max_ms
        for record in seen
    ]
    has_key = [not rules.compacted or record.key is not None for record in seen]
    bad = [i for i in range(len(seen)) if not (in_window[i] and has_key[i])]
    arguments: dict[str, Any] = {
        "rules": rules, "now_ms": NOW, "next_offset": next_offset, "leader_epoch": 1,
    }  # fmt: skip
    if not bad:
        check_plan(plan_append(sent, **arguments), seen, rules, next_offset)
        return
    with pytest.raises((InvalidTimestamp, InvalidRecord)) as caught:
        plan_append(sent, **arguments)
    assert sent == made
    listed = [fault.batch_index for fault in caught.value.record_errors]
    # Each plain message of an old format is a batch of its own, and the first bad one throws.
    assert listed == (bad if magic == 2 or codec else [0])


def check_plan(plan: Any, seen: list[Record], rules: AppendRules, next_offset: int) -> None:
    stored = []
    for entry, batch in zip(scan_entries(plan.buffer), plan.batches, strict=True):
        assert RecordBatch(plan.buffer, entry.position).crc_ok()
        assert (batch.position, batch.size) == (entry.position, entry.size)
        assert (batch.last_offset, batch.max_timestamp) == (entry.last_offset, entry.max_timestamp)
        held = list(iter_records(plan.buffer, entry.position))
        assert batch.records_count == len(held) == batch.last_offset - batch.base_offset + 1
        assert batch.max_timestamp == max(record.timestamp for record in held)
        stored += held
    expected = [
        Record(
            next_offset + i,
            NOW if rules.stamps else record.timestamp,
            record.key,
            record.value,
        )
        for i, record in enumerate(seen)
    ]
    assert stored == expected
    assert plan.max_timestamp == max(record.timestamp for record in expected)
    assert (plan.first_offset, plan.last_offset) == (next_offset, next_offset + len(seen) - 1)
    assert plan.log_append_time_ms == (NOW if rules.stamps else -1)
