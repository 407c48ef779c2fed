"""The query of a URL: what a page shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.job import JobState
from holdfast.model.names import check_name
from holdfast.store.values import JobView

MOST_COUNTED: Final = 10_000
"""Counting stops at so many jobs of a task and state: a page costs the same however many jobs there are."""

_FILTERS: Final = ("queue", "task", "error", "order_key", "worker")
_KEYS: Final = ("state", "queue", "task", "order_key", "worker")
_LONGEST: Final = 500
_DIGITS: Final = 9


class JobsQuery(msgspec.Struct, frozen=True):
    """A filter on jobs, as the URL has it."""

    state: JobState
    queue: str | None = None
    task: str | None = None
    cursor: str | None = None
    error: str | None = None
    order_key: str | None = None
    worker: str | None = None

    @property
    def filters(self) -> dict[str, str]:
        """What it asks for besides the state."""
        return {name: value for name in _FILTERS if (value := getattr(self, name))}

    @property
    def is_selection(self) -> bool:
        """Whether the verbs on many jobs can select so: by state, queue, task and error."""
        return self.order_key is None and self.worker is None

    def accepts(self, job: JobView) -> bool:
        """Whether a job is of the order key and the worker that it asks for."""
        return self.order_key in {None, job.order_key} and self.worker in {None, job.worker_id}

    def url(self, **changes: str | None) -> str:
        """Return the query string of this filter with some parts changed; the cursor only if it is among them."""
        parts = {"state": self.state, **self.filters, **changes}
        return urlencode({name: value for name, value in parts.items() if value})


class RowSlice(msgspec.Struct, frozen=True):
    """Which rows of a list a page shows, if the list is read as a whole: those from `first` on, counted from 0."""

    first: int
    most: int
    total: int

    @classmethod
    def of(cls, given: Mapping[str, str], most: int, total: int) -> RowSlice:
        """Return the slice that a URL asks for; the first one if it asks for none that there is."""
        text = given.get("from", "")
        first = int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0
        return cls(first if first < total else 0, most, total)

    @property
    def end(self) -> int:
        """The index after the last row that is shown."""
        return min(self.first + self.most, self.total)

    @property
    def is_whole(self) -> bool:
        """Whether all rows are shown."""
        return self.total <= self.most


def job_query(given: Mapping[str, str], default: JobState = JobState.RUNNING) -> JobsQuery:
    """Return the filter of a URL or a form; raises `ConfigError` for an unknown state or an invalid name."""
    state = given.get("state") or default
    if state not in list(JobState):
        raise ConfigError(f"state={state!r} is not a state: use one of {', '.join(JobState)}")
    queue, task = given.get("queue") or None, given.get("task") or None
    return JobsQuery(
        JobState(state),
        None if queue is None else check_name("queue", queue),
        None if task is None else check_name("task", task),
        given.get("cursor") or None,
        given.get("error", "")[:_LONGEST] or None,
        given.get("order_key", "")[:_LONGEST] or None,
        given.get("worker", "")[:_LONGEST] or None,
    )


def searched(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the parts of a search, as in `state:failed queue:mail`, and the words that are no such part."""
    parts: dict[str, str] = {}
    words: list[str] = []
    for word in text.split():
        key, colon, value = word.partition(":")
        if colon and value and key in {*_KEYS, "id"}:
            parts[key] = value
        else:
            words.append(word)
    return parts, words
