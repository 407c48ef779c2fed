"""The bound on the payloads of a claim or a fetch."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from holdfast.model.payload_limit import within


class Item(NamedTuple):
    payload: str


@pytest.mark.parametrize(("max_bytes", "expected"), [(0, 1), (3, 1), (4, 1), (5, 2), (9, 3), (99, 3)])
def test_items_are_taken_until_their_bytes_exceed_the_bound_but_at_least_one(max_bytes, expected):
    items = [Item("abc"), Item("é"), Item("1234")]

    assert within(items, max_bytes) == items[:expected]


def test_no_item_is_read_after_the_one_that_exceeds_the_bound():
    source = iter([Item("abc"), Item("def"), Item("ghi")])

    assert within(source, 4) == [Item("abc")]
    assert list(source) == [Item("ghi")]
