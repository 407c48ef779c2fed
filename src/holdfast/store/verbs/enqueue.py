"""Enqueues jobs of which some have conditions: a unique key, parents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from holdfast.model.job import NewJob, parents_of, unique_of
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps
from holdfast.store.values import Enqueued
from holdfast.store.verbs.children import Insertion, enqueue_children
from holdfast.store.verbs.unique import enqueue_unique

Insert = Callable[[Sequence[NewJob]], Steps[list[bool]]]
"""The store's step that inserts jobs and returns True for each whose id is new."""


def enqueue(rows: JobRows, jobs: Sequence[NewJob], insert: Insert) -> Steps[Sequence[Enqueued]]:
    """Insert those of the jobs that are needed, in one transaction; return an answer for each."""
    inserting: Insertion = insert
    if any(unique_of(job) is not None for job in jobs):
        inserting = partial(_insert_unique, rows, insert)
    if any(parents_of(job) for job in jobs):
        return (yield from enqueue_children(rows, jobs, inserting))
    return (yield from inserting(jobs))


def _insert_unique(rows: JobRows, insert: Insert, jobs: Sequence[NewJob]) -> Steps[Sequence[Enqueued]]:
    return (yield from enqueue_unique(rows, jobs, insert))
