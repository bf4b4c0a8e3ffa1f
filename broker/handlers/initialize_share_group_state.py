"""InitializeShareGroupState (key 83, version 0): begin stored states of a share group.

A state that exists begins again, unless its epoch is higher than the request's. What a member
acquired from the former state is fenced when the epoch differs. Answered when it is on disk.

Differs from Kafka: a start below -1 is refused.

Source: KIP-932; Kafka `ShareCoordinatorShard.initializeState`.
"""

from broker.groups.internal_topic import WhenDone
from broker.groups.share.values import UNKNOWN_START
from broker.requests.shares.states import AskedState, answering_states, check_range
from protocol.api import initialize_share_group_state as api


def _initialize(about: AskedState, when_done: WhenDone) -> None:
    asked: api.PartitionData = about.asked
    state = about.states.find(about.key)
    if state is not None:
        about.check_state_epoch(state)
    about.check_partition()
    check_range("start_offset", asked.start_offset, UNKNOWN_START)
    about.states.initialize_as_asked(about.key, asked.start_offset, asked.state_epoch, when_done)


handle = answering_states(api.InitializeShareGroupStateResponse, _initialize, "began the states")
"""Begin each state on its own."""
