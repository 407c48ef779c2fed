"""The search itself: no order is forgotten, and none is run for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, factorial

from tests.interleavings.orders import Footprint, Orders


def orders_of(sides: Sequence[Sequence[Footprint]], *, every: bool = False) -> list[tuple[int, ...]]:
    """Return all orders of steps that are known beforehand."""
    orders = Orders(every=every)
    found: list[tuple[int, ...]] = []
    while orders.another():
        taken: list[int] = []
        while left := {
            number: steps[taken.count(number)] for number, steps in enumerate(sides) if taken.count(number) < len(steps)
        }:
            chosen = orders.choose(left)
            if chosen is None:
                break
            taken.append(chosen)
        else:
            found.append(tuple(taken))
    return found


def locks(*tables: str) -> Footprint:
    return Footprint(locks=frozenset(tables))


def test_steps_that_all_clash_are_run_in_every_order() -> None:
    assert len(set(orders_of([[locks("a")] * 4, [locks("a")] * 3]))) == comb(7, 3)
    assert len(set(orders_of([[locks("a")], [locks("a")], [locks("a")] * 2]))) == factorial(4) // 2


def test_steps_that_have_nothing_in_common_are_run_in_one_order() -> None:
    assert orders_of([[locks("a")] * 3, [locks("b")] * 3]) == [(0, 0, 0, 1, 1, 1)]


def test_every_order_is_run_where_that_is_asked() -> None:
    assert len(set(orders_of([[locks("a")] * 3, [locks("b")] * 3], every=True))) == comb(6, 3)


def test_of_orders_that_differ_in_what_clashes_none_is_left_out() -> None:
    """Only the two steps on `b` can be told apart by their order."""
    found = orders_of([[locks("a"), locks("b"), locks("c")], [locks("d"), locks("b")]])
    assert {order.index(1, order.index(1) + 1) < order.index(0, order.index(0) + 1) for order in found} == {True, False}
    assert len(found) == 2


def test_a_read_clashes_with_the_end_of_a_write_and_not_with_the_write() -> None:
    read, write, end = Footprint(reads=frozenset("a")), locks("a"), Footprint(ends=frozenset("a"))
    assert not read.clashes(write)
    assert read.clashes(end)
    assert write.clashes(end)
    assert len(orders_of([[write, end], [read]])) == 2
