"""The verdict on a run: what must be, what chance predicts, and what is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.cli.demo.attempt_distribution import Law
from holdfast.cli.demo.plan import DemoPlan


class Found(msgspec.Struct, frozen=True):
    """Works about which something is wrong: how many, and the ids of the first few."""

    count: int = 0
    ids: Sequence[str] = ()


_NOTHING = Found()


class DemoTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted after a run."""

    produced: int
    effects: int
    completed: int
    failed: int
    left: int
    tries: dict[int, int]
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
        """How many works took effect at least once."""
        return sum(self.tries.values())

    @property
    def retried(self) -> int:
        """How many works failed at the first try, those given up included."""
        return sum(count for tries, count in self.tries.items() if tries > 1) + self.failed

    @property
    def highest_tries(self) -> int:
        """The most tries that a work took."""
        return max(self.tries, default=0)


class VerdictRow(msgspec.Struct, frozen=True):
    """A line of the verdict; `word` is ok, bad, fits, off or empty."""

    what: str
    found: str
    expected: str = ""
    word: str = ""


class DemoVerdict(msgspec.Struct, frozen=True):
    """What is to be told of a run."""

    lines: list[VerdictRow]
    problems: list[str]
    unfinished: list[str]
    summary: str

    @property
    def is_good(self) -> bool:
        """Whether nothing was doubled, lost or unexplained, and all is done."""
        return not self.problems and not self.unfinished


def judge(plan: DemoPlan, tally: DemoTotals) -> DemoVerdict:
    """Hold what was counted against what must be, and against what chance predicts."""
    lines = [*_musts(plan, tally), *_chances(plan, tally)]
    if tally.seconds > 0:
        lines.append(VerdictRow("jobs/s", f"{tally.took_effect / tally.seconds:,.0f}"))
    return DemoVerdict(lines, _problems(tally), _unfinished(plan, tally), _summary(tally))


def _musts(plan: DemoPlan, tally: DemoTotals) -> list[VerdictRow]:
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


def _chances(plan: DemoPlan, tally: DemoTotals) -> list[VerdictRow]:
    """Compare with the law. An attempt that was lost with its consumer was no try, but raises the attempt's number."""
    law = plan.law
    ended = tally.took_effect + tally.failed
    low, high = law.highest(ended)
    most = plan.max_attempts if tally.failed else tally.highest_tries
    above = high + tally.most_lost
    return [
        _counted("failed", tally.failed, ended, law.failing, law),
        *([_counted("retried", tally.retried, ended, law.retrying, law)] if plan.max_attempts > 1 else []),
        VerdictRow("most tries", f"{most}", _range(low, high), _chance(low <= most <= high)),
        VerdictRow("attempts lost", f"{tally.lost_attempts:,}"),
        VerdictRow(
            "highest attempt",
            f"{tally.highest_attempt}",
            _range(low, above),
            _chance(low <= tally.highest_attempt <= above),
        ),
        VerdictRow("spread of tries", "as shown", "geometric", _chance(law.fits(tally.tries, tally.failed))),
    ]


def _counted(what: str, count: int, works: int, chance: float, law: Law) -> VerdictRow:
    return VerdictRow(what, f"{count:,}", _about(works * chance), _chance(law.allows(count, works, chance)))


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def histogram(plan: DemoPlan, tally: DemoTotals) -> list[tuple[str, int, float]]:
    """Return, for each number of tries, how many works took so many, and how many the law expects."""
    ended = tally.took_effect + tally.failed
    rows = [
        (f"{tries}", tally.tries.get(tries, 0), ended * plan.law.chance(tries))
        for tries in range(1, min(plan.max_attempts, max(tally.highest_tries, 1)) + 1)
    ]
    rest = sum(ended * plan.law.chance(tries) for tries in range(len(rows) + 1, plan.max_attempts + 1))
    if rest:
        rows.append(("more", 0, rest))
    return [*rows, ("given up", tally.failed, ended * plan.law.failing)]


def _problems(tally: DemoTotals) -> list[str]:
    found = [
        (tally.doubled, "took effect more than once"),
        (tally.lost, "lost: neither done, nor given up, nor waiting"),
        (tally.strays, "took effect though the ledger does not say so"),
    ]
    return [f"{_works(works.count)} {what}: {_named(works)}" for works, what in found if works.count]


def _unfinished(plan: DemoPlan, tally: DemoTotals) -> list[str]:
    unfinished: list[str] = []
    if tally.produced < plan.jobs:
        unfinished.append(f"{_works(plan.jobs - tally.produced)} still to be produced")
    if tally.left:
        unfinished.append(f"{_works(tally.left)} still to be done")
    return unfinished


def _summary(tally: DemoTotals) -> str:
    kills = f", though {tally.killed} consumers were killed" if tally.killed > 1 else ""
    kills = ", though a consumer was killed" if tally.killed == 1 else kills
    given_up = f"; {_works(tally.failed)} given up after the last attempt" if tally.failed else ""
    return f"Every work that was completed took effect exactly once{kills}; none was lost{given_up}."


def _works(count: int) -> str:
    return f"{count:,} work" if count == 1 else f"{count:,} works"


def _named(works: Found) -> str:
    return ", ".join(works.ids) + (" …" if works.count > len(works.ids) else "")


def _about(expected: float) -> str:
    return f"~{expected:,.0f}" if expected >= 10 or expected < 0.05 else f"~{expected:.1f}"  # noqa: PLR2004


def _must(is_met: bool) -> str:
    return "ok" if is_met else "bad"


def _chance(is_met: bool) -> str:
    return "fits" if is_met else "off"
