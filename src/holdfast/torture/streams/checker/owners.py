"""A share has one owner at a time, and has one again soon after a fault (I17)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.history import History
from holdfast.torture.streams.checker.facts import Share
from holdfast.torture.streams.checker.invariant import StreamInvariant
from holdfast.torture.streams.records import Joined, TransitionSeen

_FREE, _GRANTED = "free", "granted"
_STEPS = {(_FREE, _GRANTED), (_GRANTED, "revoking"), (_GRANTED, _FREE), ("revoking", _FREE)}


class OneOwner(StreamInvariant):
    """I17."""

    code = "I17"
    name = "one owner"
    forbids = (
        "a share with two owners at a time, work under another node's generation, a share that stays without an owner"
    )

    def check(self) -> Iterator[Violation]:
        """Check the transitions of each share, and compare them with the nodes that worked."""
        yield from self._steps()
        yield from self._workers()
        yield from self._taken_again()

    def _steps(self) -> Iterator[Violation]:
        numbers = {step.number: place for place, step in enumerate(self.facts.transitions)}
        last: dict[Share, TransitionSeen] = {}
        for step in self.facts.transitions:
            self.checked += 1
            if (step.old_state, step.new_state) not in _STEPS:
                yield self._wrong(step, f"went from {step.old_state} to {step.new_state}")
            before = last.get(step.share)
            last[step.share] = step
            if before is None:
                continue
            grows = step.generation - before.generation
            if grows < 0 or (grows == 0 and step.new_state == _GRANTED):
                yield self._wrong(step, f"generation {step.generation} after {before.generation}")
            nothing_missed = numbers[step.number] - numbers[before.number] == step.number - before.number
            if nothing_missed and step.old_state != before.new_state:
                yield self._wrong(step, f"left {step.old_state}, but was {before.new_state}")
            if nothing_missed and _takes(step) and step.node != before.node and before.new_state != _FREE:
                yield self._wrong(step, f"was granted to {step.node} while {before.node} owned it")

    def _wrong(self, step: TransitionSeen, what: str) -> Violation:
        at_us = self.facts.run.from_store_clock(step.store_us or 0)
        return self.broken(f"{what} (transition {step.number})", share=step.share, at_us=at_us or step.at_us)

    def _workers(self) -> Iterator[Violation]:
        """Only the node to which a generation was granted worked under it."""
        owners = {(*step.share, step.generation): step.node for step in self.facts.transitions if _takes(step)}
        workers: dict[tuple[str, str, int, int], str] = {}
        for work in (self.facts.effects, self.facts.handled):
            for share, done in work.items():
                for one in done:
                    key = (*share, one.generation)
                    owner = owners.get(key)
                    if owner is not None and owner != one.node and not owner.startswith(one.node + "."):
                        yield self.broken(
                            f"{one.node} has worked under generation {one.generation}, which is {owner}'s", share=share
                        )
                    elif workers.setdefault(key, one.node) != one.node:
                        yield self.broken(f"two nodes have worked under generation {one.generation}", share=share)

    def _taken_again(self) -> Iterator[Violation]:
        """Some time after the last fault every share has an owner."""
        over_us = self.facts.over_us
        if over_us is None:
            return
        give_up_us = over_us + self.facts.run.settings.recovery_us
        for snapshot in self.facts.snapshots:
            free = [seen.share for seen in snapshot.shares if seen.state == _FREE]
            if snapshot.sent_us < over_us:
                continue
            if not free:
                self.figures.setdefault("all shares owned after the faults (s)", (snapshot.at_us - over_us) / 1e6)
            elif snapshot.sent_us > give_up_us:
                seconds = (snapshot.sent_us - over_us) / 1e6
                yield self.broken(
                    f"it and {len(free) - 1} others have no owner {seconds:.1f} s after the last fault",
                    share=free[0],
                    at_us=snapshot.at_us,
                )
                return


def _takes(step: TransitionSeen) -> bool:
    return step.new_state == _GRANTED


def recoveries(directory: Path) -> list[float]:
    """Return the seconds from the death of each killed node to the next grant of each share that it owned.

    The dead node is identified by its own process: under a supervisor several nodes share a name, and the supervisor is
    not a node. A node killed before it joined owned nothing.
    """
    run = RunFacts()
    transitions: list[TransitionSeen] = []
    nodes: dict[str, str] = {}
    for process, event in History(directory).all():
        run.note(process, event)
        if isinstance(event, TransitionSeen):
            transitions.append(event)
        elif isinstance(event, Joined):
            nodes[process] = event.node
    steps: dict[Share, list[tuple[int, TransitionSeen]]] = defaultdict(list)
    for step in sorted(transitions, key=lambda step: step.number):
        at_us = run.from_store_clock(step.store_us or 0)
        if at_us is not None:
            steps[step.share].append((at_us, step))
    return sorted(
        (back - died_us) / 1e6
        for process, node in nodes.items()
        if (died_us := run.killed_at(process)) is not None
        for of_share in steps.values()
        if (back := _back(of_share, died_us, node)) is not None
    )


def _back(steps: list[tuple[int, TransitionSeen]], died_us: int, node: str) -> int | None:
    """Return when a share that a node owned when it died was granted again; None if it did not own it."""
    owned = False
    for at_us, step in steps:
        if at_us <= died_us:
            owned = step.new_state != _FREE and step.node == node
        elif not owned:
            return None
        elif _takes(step):
            return at_us
    return None
