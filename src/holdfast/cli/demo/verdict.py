"""The verdict on a run: the counts, compared with what is required and with what the success rate predicts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.cli.demo.attempt_distribution import AttemptDistribution
from holdfast.cli.demo.plan import DemoPlan
from holdfast.model.counted import counted


class Found(msgspec.Struct, frozen=True):
    """Jobs with a problem: how many, and the ids of the first few."""

    count: int = 0
    ids: Sequence[str] = ()


_NOTHING = Found()


class DemoTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The counts after a run."""

    produced: int
    effects: int
    completed: int
    failed: int
    left: int
    used_attempts: dict[int, int]
    highest_attempt: int
    lost_attempts: int = 0
    most_lost: int = 0
    doubled: Found = _NOTHING
    lost: Found = _NOTHING
    strays: Found = _NOTHING
    cancelled: int = 0
    seconds: float = 0.0
    killed: int = 0

    @property
    def took_effect(self) -> int:
        """How many jobs took effect at least once."""
        return sum(self.used_attempts.values())

    @property
    def retried(self) -> int:
        """How many jobs failed at the first attempt, including those that failed for good."""
        return sum(count for used_attempts, count in self.used_attempts.items() if used_attempts > 1) + self.failed

    @property
    def most_used(self) -> int:
        """The largest number of used attempts of a completed job."""
        return max(self.used_attempts, default=0)


class VerdictRow(msgspec.Struct, frozen=True):
    """A line of the verdict; `word` is ok, bad, fits, off or empty."""

    what: str
    found: str
    expected: str = ""
    word: str = ""


class DemoVerdict(msgspec.Struct, frozen=True):
    """The verdict on a run."""

    lines: list[VerdictRow]
    problems: list[str]
    unfinished: list[str]
    summary: str

    @property
    def is_good(self) -> bool:
        """Whether nothing was doubled, lost or unexplained, and every job has ended."""
        return not self.problems and not self.unfinished


def judge(plan: DemoPlan, tally: DemoTotals) -> DemoVerdict:
    """Compare the counts with the requirements and with the predictions of the success rate."""
    lines = [*_requirements(plan, tally), *_predictions(plan, tally)]
    if tally.seconds > 0:
        lines.append(VerdictRow("jobs/s", f"{tally.took_effect / tally.seconds:,.0f}"))
    return DemoVerdict(lines, _problems(tally), _unfinished(plan, tally), _summary(tally))


def _requirements(plan: DemoPlan, tally: DemoTotals) -> list[VerdictRow]:
    due = tally.produced - tally.failed - tally.cancelled
    return [
        VerdictRow(
            "produced", f"{tally.produced:,}", f"{plan.jobs:,}", "ok" if tally.produced == plan.jobs else "not yet"
        ),
        VerdictRow(
            "completed", f"{tally.completed:,}", f"{due:,}", "not yet" if tally.left else _must(tally.completed == due)
        ),
        VerdictRow("doubled", f"{tally.doubled.count:,}", "0", _must(not tally.doubled.count)),
        VerdictRow("lost", f"{tally.lost.count:,}", "0", _must(not tally.lost.count)),
    ]


def _predictions(plan: DemoPlan, tally: DemoTotals) -> list[VerdictRow]:
    """Compare with the distribution. An attempt lost with its worker is not used, but raises the attempt number."""
    distribution = plan.distribution
    ended = tally.took_effect + tally.failed
    low, high = distribution.highest(ended)
    most = plan.max_attempts if tally.failed else tally.most_used
    above = high + tally.most_lost
    return [
        _counted("failed", tally.failed, ended, distribution.failing, distribution),
        *(
            [_counted("retried", tally.retried, ended, distribution.retrying, distribution)]
            if plan.max_attempts > 1
            else []
        ),
        VerdictRow("most attempts used", f"{most}", _range(low, high), _chance(low <= most <= high)),
        VerdictRow("attempts killed", f"{tally.lost_attempts:,}"),
        VerdictRow(
            "highest attempt",
            f"{tally.highest_attempt}",
            _range(low, above),
            _chance(low <= tally.highest_attempt <= above),
        ),
        VerdictRow(
            "distribution", "as shown", "geometric", _chance(distribution.fits(tally.used_attempts, tally.failed))
        ),
    ]


def _counted(what: str, count: int, jobs: int, chance: float, distribution: AttemptDistribution) -> VerdictRow:
    return VerdictRow(what, f"{count:,}", _about(jobs * chance), _chance(distribution.allows(count, jobs, chance)))


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def histogram(plan: DemoPlan, tally: DemoTotals) -> list[tuple[str, int, float]]:
    """Return, for each number of used attempts, the count of jobs and the expected count."""
    ended = tally.took_effect + tally.failed
    rows = [
        (f"{used_attempts}", tally.used_attempts.get(used_attempts, 0), ended * plan.distribution.chance(used_attempts))
        for used_attempts in range(1, min(plan.max_attempts, max(tally.most_used, 1)) + 1)
    ]
    rest = sum(
        ended * plan.distribution.chance(used_attempts) for used_attempts in range(len(rows) + 1, plan.max_attempts + 1)
    )
    if rest:
        rows.append(("more", 0, rest))
    return [*rows, ("exhausted", tally.failed, ended * plan.distribution.failing)]


def _problems(tally: DemoTotals) -> list[str]:
    found = [
        (tally.doubled, "took effect more than once"),
        (tally.lost, "lost: neither completed, nor failed, nor waiting"),
        (tally.strays, "took effect, but the ledger does not confirm it"),
    ]
    return [f"{counted(jobs.count, 'job')} {what}: {_named(jobs)}" for jobs, what in found if jobs.count]


def _unfinished(plan: DemoPlan, tally: DemoTotals) -> list[str]:
    unfinished: list[str] = []
    if tally.produced < plan.jobs:
        unfinished.append(f"{counted(plan.jobs - tally.produced, 'job')} still to be produced")
    if tally.left:
        unfinished.append(f"{counted(tally.left, 'job')} still to be consumed")
    return unfinished


def _summary(tally: DemoTotals) -> str:
    kills = f", although {tally.killed} workers were killed" if tally.killed > 1 else ""
    kills = ", although a worker was killed" if tally.killed == 1 else kills
    failed = f"; {counted(tally.failed, 'job')} failed after the last attempt" if tally.failed else ""
    return f"Every completed job took effect exactly once{kills}; none was lost{failed}."


def _named(jobs: Found) -> str:
    return ", ".join(jobs.ids) + (" …" if jobs.count > len(jobs.ids) else "")


def _about(expected: float) -> str:
    return f"~{expected:,.0f}" if expected >= 10 or expected < 0.05 else f"~{expected:.1f}"  # noqa: PLR2004


def _must(is_met: bool) -> str:
    return "ok" if is_met else "bad"


def _chance(is_met: bool) -> str:
    return "fits" if is_met else "off"
