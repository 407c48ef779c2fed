"""Unique keys that other transactions delete between two statements of a verb."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, cast

import pytest

from holdfast.errors import StoreUnavailable, UniqueConflict
from holdfast.model.conditions import UniqueScope
from holdfast.model.unique import Holder, Stage
from holdfast.store.job_rows import JobRow, JobRows
from holdfast.store.steps import Steps
from holdfast.store.unique_keys import TakenKeys, UniqueClaim, UniqueJob, UniqueKey
from holdfast.store.verbs.unique import take_back

OWN, OTHER = "own", "other"
LOST = TakenKeys(1, {}, set())  # another job held the key, and was deleted with it before the key could be locked
GIVEN = TakenKeys(0, {}, set(), all_given=True)


def held_by(job_id: str) -> TakenKeys:
    holder = Holder(job_id, UniqueScope.UNFINISHED, None, Stage.WAITING)
    return TakenKeys(1, {("greet", "k"): UniqueKey("greet", "k", holder)}, set())


class Rows:
    """The rows of one ended job with a unique key."""

    def __init__(self, *looks: TakenKeys) -> None:
        self._looks: Iterator[TakenKeys] = iter(looks)
        self.held: list[UniqueKey] = []

    def page(self, _record: type, _name: str, **_given: object) -> Steps[list[UniqueJob]]:
        yield from ()
        return [UniqueJob(OWN, "greet", "k", UniqueScope.UNFINISHED)]

    def take_keys(self, claims: Sequence[UniqueClaim], *, again: bool) -> Steps[TakenKeys]:
        yield from ()
        assert again
        assert [claim.id for claim in claims] == [OWN]
        return next(self._looks, LOST)

    def hold_keys(self, keys: Sequence[UniqueKey]) -> Steps[None]:
        yield from ()
        self.held += keys


class Ended:
    """The row of the job."""

    id, seq = OWN, 7


def taken_back(rows: Rows) -> dict[str, UniqueConflict]:
    steps: Generator[Any, Any, dict[str, UniqueConflict]] = take_back(cast("JobRows", rows), [cast("JobRow", Ended())])
    with pytest.raises(StopIteration) as end:
        next(steps)
    found: dict[str, UniqueConflict] = end.value.value
    return found


def test_a_key_that_was_deleted_before_it_could_be_locked_is_taken_in_the_next_round():
    assert taken_back(Rows(LOST, GIVEN)) == {}


def test_or_found_held_by_a_third_job():
    assert taken_back(Rows(LOST, LOST, held_by(OTHER)))[OWN].job_id == OTHER


def test_keys_that_change_all_the_time_end_in_an_error_that_may_be_repeated():
    with pytest.raises(StoreUnavailable, match="try again"):
        taken_back(Rows())
