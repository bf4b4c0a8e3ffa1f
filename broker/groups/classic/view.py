"""The part of a classic group that the functions which check and describe it may read.

The state machine (`broker.groups.classic.group`) imports those functions, so they cannot import it;
this protocol names what they read.
"""

from __future__ import annotations

from typing import Protocol

from broker.groups.classic.roster import Roster
from broker.groups.classic.values import GroupState


class GroupView(Protocol):
    """A classic group as far as other modules read it."""

    group_id: str
    state: GroupState
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    roster: Roster
