"""How many shares each node is due: in proportion to capacity, with the least change."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec


class NodeQuota(msgspec.Struct, frozen=True):
    """A node at the table: its capacity, how many shares it has of this consumer, and how many of all consumers."""

    name: str
    capacity: int
    has: int
    load: int


def quotas(shares: int, seats: Sequence[NodeQuota]) -> dict[str, int]:
    """Divide `shares` among the seats.

    Each gets its proportional part rounded down; what is left over goes by ones, first to those that have more than
    their part already (so that nothing moves), then to those whose part was cut most, then to the least loaded.
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
