"""The expected number of attempts per job: a geometric distribution, truncated at the last attempt.

An attempt succeeds with probability `p`, independently of earlier attempts. So a job needs `n` attempts with
probability `p * q ** (n - 1)`, where `q = 1 - p`, and fails after `limit` attempts with probability `q ** limit`.

Only used attempts follow this distribution. An attempt that was lost because its worker was killed says nothing about
the success rate and is counted separately.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

_FALSE_ALARM_RATE = 0.001  # how often a correct run is reported as a misfit
_NORMAL_QUANTILE = 3.0902  # of the normal distribution at 1 - _FALSE_ALARM_RATE
_LEAST_EXPECTED = 5.0  # the chi-square test needs at least this many expected cases per bin: rarer ones are merged


class AttemptDistribution(msgspec.Struct, frozen=True):
    """The probabilities of one run."""

    success_rate: float
    limit: int

    def chance(self, used_attempts: int) -> float:
        """Return the probability that a job succeeds at exactly this used attempt."""
        return self.success_rate * self._failing ** (used_attempts - 1) if 1 <= used_attempts <= self.limit else 0.0

    @property
    def failing(self) -> float:
        """The probability that a job uses up all its attempts."""
        return self._failing**self.limit

    @property
    def retrying(self) -> float:
        """The probability that the first attempt of a job fails."""
        return self._failing

    @property
    def _failing(self) -> float:
        return 1.0 - self.success_rate

    def highest(self, jobs: int) -> tuple[int, int]:
        """Return the bounds of the highest number of used attempts among `jobs` jobs; one run in 500 exceeds them."""
        if jobs < 1:
            return (0, 0)
        lowest = next(
            n for n in range(1, self.limit + 1) if n == self.limit or self._all_within(n, jobs) > _FALSE_ALARM_RATE
        )
        highest = next(
            n for n in range(1, self.limit + 1) if n == self.limit or self._all_within(n, jobs) >= 1 - _FALSE_ALARM_RATE
        )
        return (lowest, highest)

    def _all_within(self, used_attempts: int, jobs: int) -> float:
        """Return the probability that no job uses more attempts than this."""
        more = self._failing**used_attempts
        return 0.0 if more >= 1.0 else math.exp(jobs * math.log1p(-more))

    def deviation(self, jobs: int, chance: float) -> float:
        """Return the largest deviation of a count from its mean in 999 of 1,000 runs."""
        return max(1.0, (_NORMAL_QUANTILE + 0.2) * math.sqrt(jobs * chance * (1.0 - chance)))

    def allows(self, count: int, jobs: int, chance: float) -> bool:
        """Return whether a count of jobs is within the expected deviation from its mean."""
        return abs(count - jobs * chance) <= self.deviation(jobs, chance) + 0.5

    def fits(self, completed: Mapping[int, int], failed: int) -> bool:
        """Return whether completed jobs by used attempts, and failed jobs, fit the distribution (chi-square test)."""
        jobs = sum(completed.values()) + failed
        if jobs == 0:
            return True
        if any(not 1 <= used_attempts <= self.limit for used_attempts in completed):
            return False
        seen = [*(completed.get(used_attempts, 0) for used_attempts in range(1, self.limit + 1)), failed]
        expected = [
            *(jobs * self.chance(used_attempts) for used_attempts in range(1, self.limit + 1)),
            jobs * self.failing,
        ]
        bins = _merged(seen, expected)
        if len(bins) == 1:
            return True
        distance = sum((count - mean) ** 2 / mean for count, mean in bins)
        return distance <= _chi_square_bound(len(bins) - 1)


def _merged(seen: list[int], expected: list[float]) -> list[tuple[int, float]]:
    """Return counts with their expectations, neighbours merged until each bin expects enough cases."""
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
    """Return the value that a chi-square variable exceeds once in 1,000 times (Wilson-Hilferty approximation)."""
    part = 2.0 / (9.0 * freedom)
    return float(freedom * (1.0 - part + _NORMAL_QUANTILE * math.sqrt(part)) ** 3)
