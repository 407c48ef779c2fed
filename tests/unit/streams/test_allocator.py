"""Who is to have which share."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.streams.survey import TIMING, Board, node

from holdfast.model.allocation import GrantTo, Revoke, Seize, SeizeReason, ShareState
from holdfast.store.stream_values import SurveyedShare


def test_free_shares_are_granted_at_once_even_to_a_node_that_has_just_joined():
    board = Board(8, [node("a", joined=0)])
    board.carry_out(board.plan())
    assert board.counts() == {"a": 8}


def test_a_balanced_allocation_is_left_alone():
    board = Board(8, [node("a"), node("b")])
    board.settle()
    assert board.plan() == []


def test_a_node_that_has_just_joined_takes_nothing_away_from_others():
    board = Board(8, [node("a")])
    board.settle()
    board.nodes["b"] = node("b", joined=1)
    assert board.plan() == []
    board.nodes["b"] = node("b", joined=TIMING.settle.total_seconds())
    board.settle()
    assert board.counts() == {"a": 4, "b": 4}


def test_only_a_quarter_of_the_shares_is_under_way_at_a_time():
    board = Board(16, [node("a")])
    board.settle()
    board.nodes["b"] = node("b")
    moves = board.plan()
    assert len(moves) == 4
    assert all(isinstance(move, Revoke) and move.target == "b" for move in moves)
    board.carry_out(moves)
    assert board.plan() == []  # until some of them are released


def test_a_dead_nodes_shares_are_seized_and_granted_in_one_step():
    board = Board(6, [node("a"), node("b"), node("c")])
    board.settle()
    beyond = (TIMING.ttl + TIMING.grace).total_seconds() + 0.1
    board.nodes["c"] = node("c", silent=beyond)
    before = board.owners()
    moves = board.plan()
    assert {type(move) for move in moves} == {Seize, GrantTo}
    assert all(move.reason is SeizeReason.SILENT for move in moves if isinstance(move, Seize))
    board.carry_out(moves)
    assert board.counts() == {"a": 3, "b": 3, "c": 0}
    assert all(board.owners()[share] == owner for share, owner in before.items() if owner != "c")


def test_a_silent_node_keeps_its_shares_until_ttl_and_grace_have_passed():
    board = Board(6, [node("a"), node("b")])
    board.settle()
    board.nodes["b"] = node("b", silent=(TIMING.ttl + TIMING.grace).total_seconds())
    assert not any(isinstance(move, Seize) for move in board.plan())


def test_nothing_is_granted_to_a_node_that_is_silent_draining_or_has_not_this_consumer():
    silent = node("a", silent=TIMING.ttl.total_seconds() + 1)
    board = Board(4, [silent, node("b", draining=True), node("c", consumers=("other",))])
    assert board.plan() == []


def test_shares_of_a_draining_node_move_at_once_and_all_of_them():
    board = Board(8, [node("a"), node("b")])
    board.settle()
    board.nodes["a"] = node("a", draining=True)
    moves = board.plan()
    assert len([move for move in moves if isinstance(move, Revoke)]) == 4


def test_an_owner_that_the_store_does_not_know_any_more_is_replaced():
    board = Board(2, [node("a"), node("b")])
    board.settle()
    del board.nodes["a"]
    moves = board.plan()
    assert [move.reason for move in moves if isinstance(move, Seize)] == [SeizeReason.REPLACED]


def test_a_share_that_is_not_released_in_time_is_seized():
    board = Board(2, [node("a"), node("b")])
    board.settle()
    share, row = next(iter(board.rows.items()))
    board.rows[share] = SurveyedShare(share, ShareState.REVOKING, row.generation, row.owner, overdue=True)
    assert SeizeReason.OVERDUE in [move.reason for move in board.plan() if isinstance(move, Seize)]


def test_a_paused_consumer_is_granted_nothing_and_its_shares_are_revoked():
    board = Board(4, [node("a", consumers=("sync", "other"))], consumers=("sync", "other"))
    board.settle()
    board.paused = frozenset({"sync"})
    board.settle()
    assert board.counts("sync") == {"a": 0}
    assert board.counts("other") == {"a": 4}


def test_a_node_that_comes_back_gets_the_shares_back_that_were_meant_for_it():
    board = Board(9, [node("a"), node("b"), node("c")])
    board.settle()
    before = board.owners()
    for share, row in list(board.rows.items()):
        if row.owner is not None and row.owner.node_id == "b":
            board.rows[share] = SurveyedShare(share, ShareState.FREE, row.generation + 1, None, "b")
    board.nodes["b"] = node("b", joined=0)
    board.settle()
    assert board.owners() == before
    assert board.moved == 0


def test_small_consumers_do_not_all_end_up_on_the_same_node():
    consumers = tuple(f"c{number}" for number in range(4))
    board = Board(1, [node("a", consumers=consumers), node("b", consumers=consumers)], consumers=consumers)
    board.settle()
    owners = [owner or "nobody" for owner in board.owners().values()]
    assert sorted(owners) == ["a", "a", "b", "b"]


nodes = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 4), min_size=1, max_size=8)


@given(st.integers(1, 64), nodes)
def test_every_share_is_served_and_load_per_capacity_is_even(partitions, capacities):
    board = Board(partitions, [node(name, capacity=capacity) for name, capacity in capacities.items()])
    board.settle()
    counts = board.counts()
    assert sum(counts.values()) == partitions
    total = sum(capacities.values())
    for name, capacity in capacities.items():
        ideal = partitions * capacity / total
        assert math.floor(ideal) <= counts[name] <= math.ceil(ideal)


@given(st.integers(1, 64), st.integers(1, 7))
def test_a_join_moves_no_more_shares_than_the_new_nodes_part(partitions, present):
    board = Board(partitions, [node(f"n{number}") for number in range(present)])
    board.settle()
    board.moved = 0
    board.nodes["new"] = node("new")
    board.settle()
    assert board.moved <= math.ceil(partitions / (present + 1))


@given(st.integers(1, 64), st.integers(2, 8))
def test_a_death_moves_nothing_but_the_dead_nodes_shares(partitions, present):
    board = Board(partitions, [node(f"n{number}") for number in range(present)])
    board.settle()
    board.moved = 0
    before = board.owners()
    del board.nodes["n0"]
    board.settle()
    assert board.moved == 0
    assert all(board.owners()[share] == owner for share, owner in before.items() if owner != "n0")


@given(st.data())
def test_whatever_comes_and_goes_it_settles_and_serves_every_share(data):
    board = Board(data.draw(st.integers(1, 24)), [node("n0")])
    for step in range(data.draw(st.integers(1, 8))):
        name = f"n{data.draw(st.integers(0, 4))}"
        match data.draw(st.sampled_from(["join", "leave", "drain", "pass"])):
            case "join":
                board.nodes[name] = node(name, joined=data.draw(st.sampled_from([0, 60])))
            case "leave" if len(board.nodes) > 1:
                board.nodes.pop(name, None)
            case "drain" if name in board.nodes:
                board.nodes[name] = node(name, draining=True)
            case _:
                board.carry_out(board.plan())
                if step % 2:
                    board.release_all()
    board.nodes["last"] = node("last")
    board.release_all()
    board.settle()
    assert sum(board.counts().values()) == len(board.rows)


def test_a_silent_node_that_may_live_is_left_alone_and_gets_nothing():
    board = Board(6, [node("a"), node("b")])
    board.settle()
    board.gone = []
    board.nodes["b"] = node("b", silent=3600)
    assert board.plan() == []
    board.rows[next(iter(board.rows))] = SurveyedShare(next(iter(board.rows)), ShareState.FREE, 9)
    (move,) = board.plan()
    assert isinstance(move, GrantTo)
    assert move.node.node_id == "a"


def test_a_node_whose_report_lies_far_in_the_future_gets_nothing():
    board = Board(4, [node("a"), node("b", silent=-3600)])
    board.settle()
    assert board.counts() == {"a": 4, "b": 0}


def test_a_node_that_seems_to_have_joined_in_the_future_takes_its_part():
    board = Board(4, [node("a")])
    board.settle()
    board.nodes["b"] = node("b", joined=-3600)
    board.settle()
    assert board.counts() == {"a": 2, "b": 2}
