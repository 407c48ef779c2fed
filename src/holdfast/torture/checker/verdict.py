"""The result of a check."""

from __future__ import annotations

import msgspec

SHOWN = 20  # violations kept per invariant; all are counted


class Violation(msgspec.Struct, frozen=True):
    """One violation of an invariant: when it is first visible, and of which job (empty: of the whole run)."""

    invariant: str
    what: str
    at_us: int = 0
    job: str = ""

    def __str__(self) -> str:
        return f"{self.invariant}: {f'job {self.job}: ' if self.job else ''}{self.what}"


class InvariantResult(msgspec.Struct):
    """The result of one invariant: how many cases it checked, how many were violated, and the first of these."""

    invariant: str
    name: str
    forbids: str
    checked: int = 0
    violated: int = 0
    first: list[Violation] = msgspec.field(default_factory=list[Violation])
    unjudged: str = ""
    """Why some cases could not be decided, or empty."""

    @property
    def mark(self) -> str:
        """The summary of the result: without a checked case an invariant proves nothing."""
        if self.violated:
            return f"{self.violated} VIOLATED"
        return "holds" if self.checked else "not judged"

    def add(self, violation: Violation) -> None:
        """Count a violation, and keep the first few."""
        self.violated += 1
        if len(self.first) < SHOWN:
            self.first.append(violation)


class RunVerdict(msgspec.Struct):
    """The verdict on a run.

    `timeline` is the complete timeline of the first offending job. `jobs` and `records` count what was read, `figures`
    are measurements that are neither right nor wrong.
    """

    tallies: list[InvariantResult]
    jobs: int
    records: int
    timeline: str = ""
    figures: dict[str, float] = msgspec.field(default_factory=dict[str, float])

    @property
    def is_clean(self) -> bool:
        """Whether every invariant held."""
        return not any(tally.violated for tally in self.tallies)

    @property
    def violations(self) -> list[Violation]:
        """The kept violations, those of jobs first, in order of time."""
        kept = [violation for tally in self.tallies for violation in tally.first]
        return sorted(kept, key=lambda violation: (not violation.job, violation.at_us))

    @property
    def broken(self) -> list[str]:
        """The codes of the violated invariants."""
        return [tally.invariant for tally in self.tallies if tally.violated]

    def text(self) -> str:
        """Return the verdict as text."""
        lines = [f"{self.jobs} jobs, {self.records} records"]
        for tally in self.tallies:
            lines.append(
                f"  {tally.invariant:<4} {tally.name:<20} {tally.mark:<12} of {tally.checked}  forbids {tally.forbids}"
            )
            if tally.unjudged:
                lines.append(f"  {'':<4} {'':<20} not judged: {tally.unjudged}")
        lines += [f"  {name}: {value:g}" for name, value in self.figures.items()]
        if self.is_clean:
            return "\n".join(lines)
        lines += ["", "violations:", *(f"  {violation}" for violation in self.violations)]
        if self.timeline:
            lines += ["", self.timeline]
        return "\n".join(lines)
