"""Jobs of a queue are claimed in order of their turn (I22)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.model.turn import PRIORITY_STEP
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import Claimed, EnqueueAnswered

_STEP_US = int(PRIORITY_STEP.total_seconds() * 1_000_000)


class QueuePosition(NamedTuple):
    """A first attempt: its turn lies between two times, it was ready by one time and claimed between two."""

    turn_from_us: int
    turn_to_us: int
    ready_us: int
    taken_from_us: int
    taken_to_us: int
    job: str


class Turns(Invariant):
    """I22.

    Only first attempts are compared, and only if the claim itself was recorded: prefetched jobs are no longer in a
    queue. A claim may miss a job for a bounded time; the run states the bound.
    """

    code = "I22"
    name = "turns"
    forbids = "a job, ready longer than the bound, that is overtaken by a job of its queue and task with a later turn"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._places: dict[tuple[str, str], list[QueuePosition]] = {}

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Record the turn of the job and when it was claimed."""
        yield from ()
        claims = [claim for claim in job.of(Claimed) if claim.attempt == 1]
        call, answered = job.call, job.of(EnqueueAnswered)
        if not (self.run.settings.overtaking_us and claims and call and answered):
            return
        claim = claims[0]
        if call.run_us is not None or call.using or call.after or call.limit_key:  # it becomes ready later
            return
        ahead = call.delay_us - call.priority * _STEP_US
        ready_us = answered[0].at_us + call.delay_us
        place = QueuePosition(
            call.at_us + ahead, answered[0].at_us + ahead, ready_us, claim.sent_us, claim.at_us, job.id
        )
        self.judged += 1
        self._places.setdefault((call.queue, call.task), []).append(place)

    def whole_run(self) -> Iterator[Violation]:
        """Among the jobs with an earlier turn, compare with the one claimed last."""
        slack = self.run.settings.overtaking_us
        for (queue, _), places in self._places.items():
            later = sorted(places, key=lambda place: place.turn_from_us)
            earlier = sorted(places, key=lambda place: place.turn_to_us)
            index, last = 0, None
            for place in later:
                while index < len(earlier) and earlier[index].turn_to_us < place.turn_from_us:
                    if last is None or earlier[index].taken_from_us > last.taken_from_us:
                        last = earlier[index]
                    index += 1
                if last is None or last.taken_from_us <= place.taken_to_us:
                    continue
                if self.run.without_outages(last.ready_us, slack) < place.taken_from_us:
                    waited = (last.taken_from_us - place.taken_to_us) / 1e6
                    what = (
                        f"queue {queue}: job {last.job}, whose turn was earlier, waited {waited:.3f} s longer "
                        f"than job {place.job}"
                    )
                    yield self.broken(what, job=last.job, at_us=last.taken_from_us)
