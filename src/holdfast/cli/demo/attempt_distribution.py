"""What the success rate predicts of the tries that works take: the geometric law, cut off at the last attempt.

A try succeeds with chance `p`, whatever happened before. So a work takes `n` tries with the chance `p * q ** (n - 1)`,
where `q = 1 - p`, and is given up after `limit` tries with the chance `q ** limit`.

Only tries that counted obey this law. An attempt that was lost because its consumer was killed tells nothing of the
success rate: it is counted apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

_SELDOM = 0.001  # a law that holds is called a misfit this seldom
_NORMAL_QUANTILE = 3.0902  # of the normal law at 1 - _SELDOM
_LEAST_EXPECTED = 5.0  # below this many the chi-square law is no good: rarer cases are taken together


class Law(msgspec.Struct, frozen=True):
    """The chances of one run."""

    success_rate: float
    limit: int

    def chance(self, tries: int) -> float:
        """Return the chance that a work succeeds at exactly this try."""
        return self.success_rate * self._failing ** (tries - 1) if 1 <= tries <= self.limit else 0.0

    @property
    def failing(self) -> float:
        """The chance that a work uses up all its tries."""
        return self._failing**self.limit

    @property
    def retrying(self) -> float:
        """The chance that the first try of a work fails."""
        return self._failing

    @property
    def _failing(self) -> float:
        return 1.0 - self.success_rate

    def highest(self, works: int) -> tuple[int, int]:
        """Return between which bounds the highest number of tries of so many works lies, but for one run in 500."""
        if works < 1:
            return (0, 0)
        lowest = next(n for n in range(1, self.limit + 1) if n == self.limit or self._all_within(n, works) > _SELDOM)
        highest = next(
            n for n in range(1, self.limit + 1) if n == self.limit or self._all_within(n, works) >= 1 - _SELDOM
        )
        return (lowest, highest)

    def _all_within(self, tries: int, works: int) -> float:
        """Return the chance that no work takes more than so many tries."""
        more = self._failing**tries
        return 0.0 if more >= 1.0 else math.exp(works * math.log1p(-more))

    def deviation(self, works: int, chance: float) -> float:
        """Return how far a count of works is off from its mean in 999 of 1,000 runs at most."""
        return max(1.0, (_NORMAL_QUANTILE + 0.2) * math.sqrt(works * chance * (1.0 - chance)))

    def allows(self, count: int, works: int, chance: float) -> bool:
        """Tell whether a count of works is as near to its mean as chance lets it be."""
        return abs(count - works * chance) <= self.deviation(works, chance) + 0.5

    def fits(self, completed: Mapping[int, int], failed: int) -> bool:
        """Tell whether works that took so many tries, and those given up, look as the law predicts (chi-square)."""
        works = sum(completed.values()) + failed
        if works == 0:
            return True
        if any(not 1 <= tries <= self.limit for tries in completed):
            return False
        seen = [*(completed.get(tries, 0) for tries in range(1, self.limit + 1)), failed]
        expected = [*(works * self.chance(tries) for tries in range(1, self.limit + 1)), works * self.failing]
        bins = _merged(seen, expected)
        if len(bins) == 1:
            return True
        distance = sum((count - mean) ** 2 / mean for count, mean in bins)
        return distance <= _chi_square_bound(len(bins) - 1)


def _merged(seen: list[int], expected: list[float]) -> list[tuple[int, float]]:
    """Return counts beside expectations, neighbours taken together until enough is expected of each."""
    bins: list[tuple[int, float]] = []
    count, mean = 0, 0.0
    for one_seen, one_expected in zip(seen, expected, strict=True):
        count, mean = count + one_seen, mean + one_expected
        if mean >= _LEAST_EXPECTED:
            bins.append((count, mean))
            count, mean = 0, 0.0
    if (count or mean) and bins:
        last_count, last_mean = bins.pop()
        count, mean = count + last_count, mean + last_mean
    if count or mean:
        bins.append((count, mean))
    return bins


def _chi_square_bound(freedom: int) -> float:
    """Return what a chi-square variable exceeds once in a thousand times (Wilson and Hilferty's approximation)."""
    part = 2.0 / (9.0 * freedom)
    return float(freedom * (1.0 - part + _NORMAL_QUANTILE * math.sqrt(part)) ** 3)
