"""All kinds of work. A new feature adds its module here; operator actions that it needs go into `Follow`."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from holdfast.store.capabilities import Capabilities
from holdfast.torture.work import (
    batched,
    cancels,
    child_jobs,
    endings,
    graph,
    killers,
    limited,
    long,
    ordered,
    outside,
    own_transactions,
    paced,
    paused,
    plain,
    resets,
    retried_by_operator,
    ticking,
    transactions,
    undone,
    unique,
    unknown_tasks,
)
from holdfast.torture.work.base import Work

WORKS: Final[tuple[Work, ...]] = (
    *plain.WORKS,
    *transactions.WORKS,
    *undone.WORKS,
    *batched.WORKS,
    *own_transactions.WORKS,
    *child_jobs.WORKS,
    *endings.WORKS,
    *cancels.WORKS,
    *retried_by_operator.WORKS,
    *long.WORKS,
    *killers.WORKS,
    *outside.WORKS,
    *unknown_tasks.WORKS,
    *ordered.WORKS,
    *unique.WORKS,
    *limited.WORKS,
    *paced.WORKS,
    *ticking.WORKS,
    *graph.WORKS,
    *paused.WORKS,
    *resets.WORKS,
)


class Drawer:
    """Draws work that the store allows by weight, within its bounds; `share` is this producer's part of each bound."""

    def __init__(self, chance: random.Random, share: float, *, jobs: int, capabilities: Capabilities) -> None:
        self._chance = chance
        self._works = [work for work in WORKS if all(getattr(capabilities, need) for need in work.needs)]
        self._drawn: Counter[str] = Counter()
        self._bounds = {
            work.name: max(1, round(share * min(work.most, 1 + work.most * jobs // 100_000)))
            for work in self._works
            if work.most is not None
        }
        # In a run of any size, each kind is drawn at least once.
        self._first = list(self._works)
        chance.shuffle(self._first)

    def draw(self) -> Work:
        """Return the next kind of work."""
        if self._first:
            work = self._first.pop()
        else:
            (work,) = self._chance.choices(self._works, [work.weight for work in self._works])
        bound = self._bounds.get(work.name)
        if bound is not None and self._drawn[work.name] >= bound:
            return plain.MOST
        self._drawn[work.name] += 1
        return work
