"""How many shares each node is due: in proportion to capacity, with the least change."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec


class NodeQuota(msgspec.Struct, frozen=True):
    """A node, its capacity, and the number of shares that it has of this consumer and of all consumers."""

    name: str
    capacity: int
    has: int
    load: int


def quotas(shares: int, seats: Sequence[NodeQuota]) -> dict[str, int]:
    """Divide `shares` among the nodes.

    Each gets its proportional part rounded down; the remaining shares go one by one, first to nodes that already have
    more than their part (so that nothing moves), then to those that lost most by rounding, then to the least loaded.
    """
    total = sum(seat.capacity for seat in seats)
    if not total:
        return {}
    ideal = {seat.name: Fraction(shares * seat.capacity, total) for seat in seats}
    due = {name: int(part) for name, part in ideal.items()}
    left = shares - sum(due.values())

    def claim(seat: NodeQuota) -> tuple[object, ...]:
        cut = ideal[seat.name] - due[seat.name]
        return (cut == 0, seat.has <= due[seat.name], -cut, Fraction(seat.load, seat.capacity), seat.name)

    for seat in sorted(seats, key=claim)[:left]:
        due[seat.name] += 1
    return due
