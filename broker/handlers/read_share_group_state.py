"""ReadShareGroupState (key 84, version 0): read stored states of a share group.

A new leader epoch is stored with the reading, and fences the brokers of lower ones from then on.

Source: KIP-932; Kafka `ShareCoordinatorShard.readStateAndMaybeUpdateLeaderEpoch`.
"""

from broker.groups.internal_topic import WhenDone
from broker.groups.share.persister import StateChange
from broker.groups.share.stored_state import UNKNOWN_EPOCH
from broker.requests.shares.states import AskedState, answering_states
from protocol.api import read_share_group_state as api
from protocol.error_codes import ErrorCode
from protocol.structs import StoredBatch


def _read(about: AskedState, when_done: WhenDone) -> None:
    outcome: api.PartitionResult = about.outcome
    state = about.existing()
    about.check_leader_epoch(state)
    about.check_partition()

    def stored(error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            outcome.state_epoch = state_epoch
            outcome.start_offset = start_offset
            outcome.state_batches = batches
        when_done(error)

    state_epoch, start_offset = state.state_epoch, state.start_offset
    batches = [
        StoredBatch(
            first_offset=each.first,
            last_offset=each.last,
            delivery_state=each.state,
            delivery_count=each.deliveries,
        )
        for each in state.batches
    ]
    leader_epoch = about.asked.leader_epoch
    if leader_epoch in (UNKNOWN_EPOCH, state.fences.leader_epoch):
        stored(ErrorCode.NONE)
        return
    change = StateChange(
        key=about.key,
        state_epoch=state_epoch,
        start_offset=start_offset,
        batches=(),
        done_count=state.done_count,
        leader_epoch=leader_epoch,
    )
    about.states.write(change, stored)


handle = answering_states(api.ReadShareGroupStateResponse, _read)
"""Read each state on its own."""
