"""ReadShareGroupStateSummary (key 87, versions 0-1): where a share group stands.

A state that does not exist is answered as one at its beginning.

Source: KIP-932; Kafka `ShareCoordinatorShard.readStateSummary`.
"""

from broker.groups.internal_topic import WhenDone
from broker.groups.share.values import UNKNOWN_START
from broker.requests.shares.states import AskedState, answering_states
from protocol.api import read_share_group_state_summary as api
from protocol.error_codes import ErrorCode


def _sum_up(about: AskedState, when_done: WhenDone) -> None:
    outcome: api.PartitionResult = about.outcome
    about.check_partition()
    state = about.states.find(about.key)
    if state is None:
        outcome.start_offset = UNKNOWN_START
    else:
        outcome.state_epoch = state.state_epoch
        outcome.leader_epoch = state.leader_epoch
        outcome.start_offset = state.start_offset
        outcome.delivery_complete_count = state.done_count
    when_done(ErrorCode.NONE)


handle = answering_states(api.ReadShareGroupStateSummaryResponse, _sum_up)
"""Sum up each state on its own."""
