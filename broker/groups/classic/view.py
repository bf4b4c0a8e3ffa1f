"""What may be read of a classic group by the functions that check and describe it.

The state machine (`broker.groups.classic.group`) imports those functions, so they cannot import it;
this names the part of a group that they read.
"""

from __future__ import annotations

from typing import Protocol

from broker.groups.classic.roster import Roster
from broker.groups.classic.values import GroupState


class GroupView(Protocol):
    """A classic group as far as others read it."""

    group_id: str
    state: GroupState
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    roster: Roster
