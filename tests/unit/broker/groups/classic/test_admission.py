"""The commit table of `commit_error`, cell by cell."""

from __future__ import annotations

import pytest

from broker.groups.classic.group import ClassicGroup, commit_error, join_error
from broker.groups.classic.values import GroupLimits, JoinRequest, SyncRequest
from protocol.error_codes import ErrorCode

NO_MEMBER = ("", None, -1)


def _join(group: ClassicGroup, member_id: str = "", new_id: str = "m1") -> None:
    request = JoinRequest(
        member_id=member_id,
        new_member_id=new_id,
        protocol_type="consumer",
        protocols=(("range", b""),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
    )
    group.join(request, object(), 0)


def _group(state: str) -> ClassicGroup:
    group = ClassicGroup("g", GroupLimits())
    if state == "Dead":
        group.kill()
    if state in ("Empty", "Dead"):
        return group
    _join(group)
    if state == "CompletingRebalance":
        return group
    for action in group.sync(SyncRequest(member_id="m1", generation_id=1), object(), 0):
        receipt = getattr(action, "receipt", None)
        if receipt is not None:
            group.stored(receipt, ErrorCode.NONE, 0)
    if state == "PreparingRebalance":
        _join(group, new_id="m2")
    assert group.state.value == state
    return group


@pytest.mark.parametrize(
    ("state", "who", "plain", "transactional"),
    [
        ("Empty", NO_MEMBER, "NONE", "NONE"),
        ("Empty", ("m1", None, 1), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        ("Stable", NO_MEMBER, "UNKNOWN_MEMBER_ID", "NONE"),
        ("Stable", ("m1", None, 1), "NONE", "NONE"),
        ("Stable", ("m1", None, 0), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
        ("Stable", ("m1", "i", 1), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        ("Stable", ("m1", None, -1), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
        ("PreparingRebalance", NO_MEMBER, "UNKNOWN_MEMBER_ID", "NONE"),
        ("PreparingRebalance", ("m1", None, 1), "NONE", "NONE"),
        ("CompletingRebalance", ("m1", None, 1), "REBALANCE_IN_PROGRESS", "NONE"),
        ("Dead", NO_MEMBER, "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_who_may_commit(
    state: str, who: tuple[str, str | None, int], plain: str, transactional: str
) -> None:
    group = _group(state)
    answers = [
        commit_error(group, *who, is_transactional=is_transactional).name
        for is_transactional in (False, True)
    ]
    assert answers == [plain, transactional]


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, 0, -1])
def test_is_a_session_timeout_out_of_range_refused(timeout_ms: int) -> None:
    request = JoinRequest(
        member_id="",
        new_member_id="m",
        protocol_type="consumer",
        protocols=(("range", b""),),
        session_timeout_ms=timeout_ms,
        rebalance_timeout_ms=1,
    )
    error = join_error(_group("Empty"), request, GroupLimits())
    assert error is ErrorCode.INVALID_SESSION_TIMEOUT
