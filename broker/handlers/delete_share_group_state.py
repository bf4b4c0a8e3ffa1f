"""DeleteShareGroupState (key 86, version 0): delete stored states of a share group.

A state that does not exist is deleted all the same. Answered when it is on disk.

Source: KIP-932; Kafka `ShareCoordinatorShard.deleteState`.
"""

from broker.groups.internal_topic import WhenDone
from broker.requests.shares.states import AskedState, answering_states
from protocol.api import delete_share_group_state as api
from protocol.error_codes import ErrorCode


def _delete(about: AskedState, when_done: WhenDone) -> None:
    about.check_partition()
    if about.key in about.states:
        about.states.forget([about.key], when_done)
    else:
        when_done(ErrorCode.NONE)


handle = answering_states(api.DeleteShareGroupStateResponse, _delete, "deleted the states")
"""Delete each state on its own."""
