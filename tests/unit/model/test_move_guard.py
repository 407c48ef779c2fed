"""Whether a move still holds, for each thing that may have changed since it was planned."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.model.allocation import GrantTo, Move, NodeKey, Revoke, Seize, SeizeReason, Share, ShareState
from holdfast.model.move_guard import NodeSeen, ShareSeen, node_in_question, still_holds

SHARE = Share("billing", "companies", 3)
ANNA, ANNA_AGAIN, BEN = NodeKey("anna", "1"), NodeKey("anna", "2"), NodeKey("ben", "1")
TTL, GRACE = 10, 2
LIVES = NodeSeen("1", is_draining=False, since=4, ttl=TTL)
FREE = ShareSeen(ShareState.FREE, 7, None, is_overdue=False, is_paused=False)
GRANTED = ShareSeen(ShareState.GRANTED, 7, ANNA, is_overdue=False, is_paused=False)
LATE = ShareSeen(ShareState.REVOKING, 7, ANNA, is_overdue=True, is_paused=False)

GRANT = GrantTo(SHARE, 7, BEN)
REVOKE = Revoke(SHARE, 7, None)
SILENT, REPLACED, OVERDUE = (Seize(SHARE, 7, reason) for reason in SeizeReason)


def but(seen, **changes):
    return msgspec.structs.replace(seen, **changes)


@pytest.mark.parametrize(
    ("move", "share", "node"),
    [
        (GRANT, FREE, LIVES),
        (GRANT, FREE, but(LIVES, since=TTL)),
        (REVOKE, GRANTED, LIVES),
        (REVOKE, but(GRANTED, is_paused=True), LIVES),
        (REVOKE, GRANTED, None),
        (SILENT, GRANTED, but(LIVES, since=TTL + GRACE + 1)),
        (SILENT, GRANTED, but(LIVES, since=-TTL - 1)),
        (SILENT, LATE, but(LIVES, since=TTL + GRACE + 1)),
        (REPLACED, GRANTED, None),
        (REPLACED, GRANTED, but(LIVES, incarnation=ANNA_AGAIN.incarnation)),
        (OVERDUE, LATE, LIVES),
        (OVERDUE, LATE, None),
    ],
)
def test_a_move_holds_as_long_as_what_it_was_planned_on_is_so(move: Move, share: ShareSeen, node: NodeSeen | None):
    assert still_holds(move, share, node, grace=GRACE)
    assert not still_holds(move, but(share, generation=8), node, grace=GRACE)


@pytest.mark.parametrize(
    ("move", "share", "node"),
    [
        (GRANT, GRANTED, LIVES),
        (GRANT, LATE, LIVES),
        (GRANT, but(FREE, is_paused=True), LIVES),
        (GRANT, FREE, None),
        (GRANT, FREE, but(LIVES, incarnation="2")),
        (GRANT, FREE, but(LIVES, is_draining=True)),
        (GRANT, FREE, but(LIVES, since=TTL + 1)),
        (REVOKE, FREE, LIVES),
        (REVOKE, LATE, LIVES),
        (SILENT, GRANTED, LIVES),
        (SILENT, GRANTED, but(LIVES, since=TTL + GRACE)),
        (SILENT, GRANTED, None),
        (SILENT, GRANTED, but(LIVES, incarnation="2", since=TTL + GRACE + 1)),
        (SILENT, FREE, but(LIVES, since=TTL + GRACE + 1)),
        (REPLACED, GRANTED, LIVES),
        (REPLACED, GRANTED, but(LIVES, since=TTL + GRACE + 1)),
        (REPLACED, FREE, None),
        (OVERDUE, but(LATE, is_overdue=False), LIVES),
        (OVERDUE, but(GRANTED, is_overdue=True), LIVES),
        (OVERDUE, FREE, LIVES),
    ],
)
def test_a_move_does_not_hold_once_it_is_not(move: Move, share: ShareSeen, node: NodeSeen | None):
    assert not still_holds(move, share, node, grace=GRACE)


def test_a_grant_is_judged_by_who_shall_have_the_share_and_the_others_by_who_has_it():
    assert node_in_question(GRANT, ANNA) == "ben"
    assert [node_in_question(move, ANNA) for move in (REVOKE, SILENT, REPLACED, OVERDUE)] == ["anna"] * 4
    assert node_in_question(SILENT, None) is None
