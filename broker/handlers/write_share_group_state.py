"""WriteShareGroupState (key 85, versions 0-1): add to stored states of a share group.

Refused, in this order: a state that is not initialized, a lower leader epoch, a lower epoch of the
state, a partition that does not exist. Answered when it is on disk.

Differs from Kafka: ranges that end before they begin, and states of delivery that no broker stores,
are refused; a share partition that was loaded from them would not know what to deliver.

Source: KIP-932; Kafka `ShareCoordinatorShard.writeState`.
"""

from typing import Final

from broker.groups.internal_topic import WhenDone
from broker.groups.share.persister import StateChange
from broker.groups.share.stored_state import UNKNOWN_COUNT
from broker.groups.share.values import UNKNOWN_START, Delivery, StateBatch
from broker.requests.shares.states import AskedState, StateRefused, answering_states, check_range
from protocol.api import write_share_group_state as api
from protocol.error_codes import ErrorCode
from protocol.structs import StoredBatch

_STORED: Final = (Delivery.AVAILABLE, Delivery.ACKNOWLEDGED, Delivery.ARCHIVED)


def _write(about: AskedState, when_done: WhenDone) -> None:
    asked: api.PartitionData = about.asked
    state = about.existing()
    about.check_leader_epoch(state)
    about.check_state_epoch(state)
    about.check_partition()
    check_range("start_offset", asked.start_offset, UNKNOWN_START)
    check_range("delivery_complete_count", asked.delivery_complete_count, UNKNOWN_COUNT)
    change = StateChange(
        key=about.key,
        state_epoch=state.state_epoch,
        start_offset=asked.start_offset,
        batches=[_batch(each) for each in asked.state_batches],
        done_count=asked.delivery_complete_count,
    )
    about.states.write(change, when_done)


def _batch(asked: StoredBatch) -> StateBatch:
    check_range("first_offset", asked.first_offset, 0)
    check_range("last_offset", asked.last_offset, asked.first_offset)
    check_range("delivery_count", asked.delivery_count, 0)
    if asked.delivery_state not in _STORED:
        raise StateRefused(
            ErrorCode.INVALID_REQUEST,
            f"delivery_state is {asked.delivery_state}; it has to be 0 (available), "
            "2 (acknowledged) or 4 (archived).",
        )
    state = Delivery(asked.delivery_state)
    return StateBatch(asked.first_offset, asked.last_offset, state, asked.delivery_count)


handle = answering_states(api.WriteShareGroupStateResponse, _write, "wrote the states")
"""Add to each state on its own."""
