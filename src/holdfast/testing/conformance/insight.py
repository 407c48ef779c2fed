"""Insight: lists and counts match the stored state."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from holdfast.errors import JobNotFound
from holdfast.model.ids import new_id, short_id
from holdfast.model.job import FINAL_STATES, JobState, NewJob
from holdfast.store.backend import Backend
from holdfast.store.values import JobFilter, QueueView
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    OUTCOMES,
    Conformance,
    a_job,
    bring_to,
    claim,
    claim_one,
    enqueue,
    finish,
    hold_one,
    in_extender,
    queue_view,
)

# Ordered so that no step claims the job of another: jobs that stay ready come last.
EVERY_STATE = [
    JobState.RUNNING,
    JobState.COMPLETED,
    JobState.FAILED,
    JobState.CANCELLED,
    JobState.SCHEDULED,
    JobState.READY,
]


async def _pages(backend: Backend, selection: JobFilter) -> list[list[str]]:
    """Return the ids of all pages; fails if the last page has a cursor to an empty one."""
    pages: list[list[str]] = []
    while True:
        page = await backend.insight.jobs(selection)
        if page.jobs:
            pages.append([view.id for view in page.jobs])
        if page.cursor is None:
            return pages
        assert page.jobs
        selection = msgspec.structs.replace(selection, cursor=page.cursor)


class TestStates(Conformance):
    """`Insight.states`."""

    async def test_the_states_of_many_jobs_are_found_together(self, backend: Backend) -> None:
        ids = {state: (await bring_to(backend, state))[0] for state in EVERY_STATE}
        head, behind = (msgspec.structs.replace(a_job(), order_key="one") for _ in range(2))
        await enqueue(backend, head, behind)
        asked = [*ids.values(), behind.id, new_id()]

        found = {job.id: job.state for job in await backend.insight.states(asked)}

        assert found == {**{job_id: str(state) for state, job_id in ids.items()}, behind.id: "blocked"}

    async def test_the_result_of_a_completed_job_comes_with_its_state(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await finish(backend, job.lease, OUTCOMES["completed"])
        (seen,) = await backend.insight.states([job.id])
        assert seen == (job.id, "completed", '"paid"', job.seq)

    async def test_no_jobs_have_no_states(self, backend: Backend) -> None:
        assert await backend.insight.states([]) == []


class TestJobs(Conformance):
    """`Insight.job`, `find` and `jobs`."""

    async def test_a_job_that_is_not_known_raises_job_not_found(self, backend: Backend) -> None:
        with pytest.raises(JobNotFound):
            await backend.insight.job(new_id())

    async def test_all_details_of_a_job_are_returned(self, backend: Backend, clock: ManualClock) -> None:
        new = a_job("mail", payload='{"to":"ada"}', priority=2, max_attempts=7, delay=timedelta(seconds=5))
        await enqueue(backend, new)
        details = await backend.insight.job(new.id)
        view = details.job
        assert (view.id, view.queue, view.task, view.state) == (new.id, "mail", "greet", JobState.SCHEDULED)
        assert (view.priority, view.attempt, view.max_attempts) == (2, 0, 7)
        assert (view.enqueued_at, view.run_at) == (clock.now, clock.now + timedelta(seconds=5))
        assert (details.payload, details.headers, details.attempts) == ('{"to":"ada"}', {}, [])
        assert (details.result, details.lease) == (None, None)

    async def test_a_job_can_be_copied_from_its_details_before_during_and_after_its_run(self, backend: Backend) -> None:
        new = NewJob(
            id=new_id(),
            queue="mail",
            task="greet",
            payload='{"to":"ada"}',
            headers={"traceparent": "00-1"},
            priority=-3,
            max_attempts=7,
            timeout=12.5,
            order_key="customer-3",
        )

        async def kept() -> NewJob:
            details = await backend.insight.job(new.id)
            job = details.job
            return NewJob(
                id=job.id,
                queue=job.queue,
                task=job.task,
                payload=details.payload,
                headers=details.headers,
                priority=job.priority,
                max_attempts=job.max_attempts,
                timeout=details.timeout,
                order_key=job.order_key,
            )

        await enqueue(backend, new)
        assert await kept() == new
        held = await claim_one(backend)
        assert await kept() == new
        await finish(backend, held.lease, OUTCOMES["completed"])
        assert await kept() == new

    async def test_a_job_without_a_time_limit_has_none(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job())
        assert (await backend.insight.job(job_id)).timeout is None

    async def test_the_lease_of_a_running_job_is_shown(self, backend: Backend, clock: ManualClock) -> None:
        job = await hold_one(backend)
        details = await backend.insight.job(job.id)
        assert (details.job.started_at, details.job.worker_id) == (clock.now, "worker-a")
        assert details.lease is not None
        assert (details.lease.fence, details.lease.attempt) == (job.fence, 1)

    async def test_jobs_are_listed_in_one_state_only(self, backend: Backend) -> None:
        ids = {state: (await bring_to(backend, state))[0] for state in EVERY_STATE}
        for state, job_id in ids.items():
            views = (await backend.insight.jobs(JobFilter(state=state))).jobs
            assert [(view.id, view.state) for view in views] == [(job_id, state)]
        blocked = await backend.insight.jobs(JobFilter(state=JobState.BLOCKED))
        assert (blocked.jobs, blocked.cursor) == ([], None)

    async def test_a_list_and_the_details_show_the_same_job(self, backend: Backend, clock: ManualClock) -> None:
        for state in EVERY_STATE:
            clock.advance(1)
            job_id, _ = await bring_to(backend, state)
            (view,) = (await backend.insight.jobs(JobFilter(state=state))).jobs
            assert view == (await backend.insight.job(job_id)).job

    async def test_waiting_jobs_are_listed_in_the_order_in_which_they_will_run(self, backend: Backend) -> None:
        last, first, second = await enqueue(backend, a_job(priority=-1), a_job(priority=1), a_job(priority=1))
        late, soon = await enqueue(backend, *(a_job(delay=timedelta(seconds=seconds)) for seconds in (9, 3)))
        assert await _pages(backend, JobFilter(state=JobState.READY, limit=2)) == [[first, second], [last]]
        assert await _pages(backend, JobFilter(state=JobState.SCHEDULED, limit=1)) == [[soon], [late]]

    @pytest.mark.parametrize("state", [JobState.RUNNING, *sorted(FINAL_STATES)])
    async def test_other_jobs_are_listed_newest_first(self, backend: Backend, state: JobState) -> None:
        ids = [(await bring_to(backend, state))[0] for _ in range(5)]
        pages = await _pages(backend, JobFilter(state=state, limit=2))
        assert [len(page) for page in pages] == [2, 2, 1]
        assert [job_id for page in pages for job_id in page] == ids[::-1]

    async def test_the_cursor_of_a_page_leads_to_the_next_one_within_the_selection(self, backend: Backend) -> None:
        mail = await enqueue(backend, *(a_job("mail") for _ in range(3)))
        await enqueue(backend, a_job("sale"), a_job("mail", task="other"))
        selection = JobFilter(state=JobState.READY, queue="mail", task="greet", limit=2)
        assert await _pages(backend, selection) == [mail[:2], mail[2:]]

    async def test_jobs_are_listed_of_one_queue_or_task(self, backend: Backend) -> None:
        mail, sale, other = await enqueue(backend, a_job("mail"), a_job("sale"), a_job("mail", task="other"))

        async def listed(queue: str | None, task: str | None) -> list[str]:
            selection = JobFilter(state=JobState.READY, queue=queue, task=task)
            return [view.id for view in (await backend.insight.jobs(selection)).jobs]

        assert await listed("mail", None) == [mail, other]
        assert await listed(None, "greet") == [mail, sale]
        assert await listed("mail", "greet") == [mail]
        assert await listed("nowhere", None) == []

    async def test_at_most_limit_ids_that_begin_with_a_prefix_are_found(self, backend: Backend) -> None:
        tail = new_id()[8:]
        ids = [f"{head}{tail}" for head in ("aaaaaaaa", "aaaaaaab", "bbbbbbbb", "ffffffff")]
        await enqueue(backend, *(a_job(job_id=job_id) for job_id in ids))
        assert sorted(await backend.insight.find("aaaaaaa", 10)) == ids[:2]
        assert await backend.insight.find("aaaaaaab", 10) == [ids[1]]
        assert await backend.insight.find("ffff", 10) == [ids[3]]
        assert await backend.insight.find(ids[2], 10) == [ids[2]]
        assert len(await backend.insight.find("", 3)) == 3
        assert await backend.insight.find("%", 10) == []
        assert await backend.insight.find("cc", 10) == []

    async def test_the_used_attempts_of_a_job_are_known_unless_it_is_completed(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job(max_attempts=3))

        async def used() -> tuple[int, int | None]:
            view = (await backend.insight.job(job_id)).job
            page = await backend.insight.jobs(JobFilter(state=view.state))
            assert [listed.used_attempts for listed in page.jobs] == [view.used_attempts]
            return view.attempt, view.used_attempts

        assert await used() == (0, 0)
        job = await claim_one(backend)
        assert await used() == (1, 1)
        await finish(backend, job.lease, OUTCOMES["failed"])
        assert await used() == (1, 1)
        await backend.jobs.retry(job_id)
        assert await used() == (1, 0)
        job = await claim_one(backend)
        assert await used() == (2, 1)
        await backend.jobs.release([job.lease], started=False)
        assert await used() == (2, 0)
        job = await claim_one(backend)
        await finish(backend, job.lease, OUTCOMES["cancelled"])
        assert await used() == (3, 1)
        await backend.jobs.retry(job_id)
        job = await claim_one(backend)
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await used() == (4, None)

    async def test_a_job_that_fails_by_losses_keeps_its_used_attempts(self, backend: Backend) -> None:
        (job_id,) = await enqueue(backend, a_job(max_attempts=2))
        for _ in range(2):
            await finish(backend, (await claim_one(backend)).lease, OUTCOMES["lost"])
        view = (await backend.insight.job(job_id)).job
        assert (view.state, view.attempt, view.used_attempts) == (JobState.FAILED, 2, 2)

    async def test_the_attempt_that_completed_a_job_is_listed_after_the_others(self, backend: Backend) -> None:
        job = await hold_one(backend)
        await backend.jobs.release([job.lease], started=True)
        job = await claim_one(backend, worker_id="worker-b")
        assert [each.outcome for each in (await backend.insight.job(job.id)).all_attempts] == ["released"]
        await finish(backend, job.lease, OUTCOMES["completed"])
        details = await backend.insight.job(job.id)
        last = details.all_attempts[-1]
        assert [each.attempt for each in details.all_attempts] == [1, 2]
        assert (last.outcome, last.worker_id) == ("completed", "worker-b")
        assert (last.started_at, last.ended_at) == (details.job.started_at, details.job.finished_at)

    async def test_a_short_id_finds_its_job_and_no_other(self, backend: Backend) -> None:
        ids = await enqueue(backend, *(a_job() for _ in range(3)))
        views = [(await backend.insight.job(job_id)).job for job_id in ids]
        for view in views:
            assert await backend.insight.find(short_id(view.seq, view.id), 10) == [view.id]
        wrong_end = f"{int(ids[0][-4:], 16) ^ 1:04x}"
        assert await backend.insight.find(f"{views[0].seq}.{wrong_end}", 10) == []
        assert await backend.insight.find(short_id(max(view.seq for view in views) + 1, ids[0]), 10) == []


class TestLists(Conformance):
    """`Insight.queues`, `leases`, `workers` and `counts`."""

    async def test_all_queues_are_listed_with_their_counts(self, backend: Backend, clock: ManualClock) -> None:
        for state in EVERY_STATE:
            await bring_to(backend, state)
        await enqueue(backend, a_job("mail", task="other"))
        clock.advance(3)
        assert await queue_view(backend, "default") == QueueView(
            name="default",
            paused=False,
            ready=1,
            scheduled=1,
            blocked=0,
            running=1,
            failed=1,
            oldest_ready=timedelta(seconds=3),
        )
        mail = await queue_view(backend, "mail")
        assert (mail.ready, mail.running, mail.oldest_ready) == (1, 0, timedelta(seconds=3))

    async def test_the_age_of_the_oldest_job_counts_from_when_it_was_due_whatever_its_priority(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await enqueue(backend, a_job("early", priority=5), a_job("late", priority=-5))
        clock.advance(3)
        for queue in ("early", "late"):
            assert (await queue_view(backend, queue)).oldest_ready == timedelta(seconds=3)

    async def test_the_oldest_is_the_job_whose_turn_is_next_of_all_tasks_of_the_queue(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await enqueue(backend, a_job(task="other"), a_job())
        clock.advance(4)
        await enqueue(backend, a_job(priority=1))
        clock.advance(3)
        assert (await queue_view(backend, "default")).oldest_ready == timedelta(seconds=3)
        (first,) = await claim(backend, 1)
        assert first.priority == 1
        assert (await queue_view(backend, "default")).oldest_ready == timedelta(seconds=7)

    async def test_a_queue_with_nothing_ready_has_no_oldest(self, backend: Backend) -> None:
        await enqueue(backend, a_job(delay=timedelta(seconds=5)))
        assert (await queue_view(backend, "default")).oldest_ready is None

    async def test_active_leases_are_listed_the_next_to_expire_first(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        long = await hold_one(backend, lease=timedelta(seconds=60))
        short = await hold_one(backend, lease=timedelta(seconds=10), worker_id="worker-b")
        clock.advance(20)
        leases = await backend.insight.leases(MANY)
        assert [lease.job_id for lease in leases] == [short.id, long.id]
        assert [lease.expires_in for lease in leases] == [timedelta(seconds=-10), timedelta(seconds=40)]
        assert [lease.worker_id for lease in leases] == ["worker-b", "worker-a"]
        assert [lease.job_id for lease in await backend.insight.leases(1)] == [short.id]
        assert [lease.job_id for lease in await backend.insight.leases(MANY, expired_only=True)] == [short.id]

    async def test_an_ended_lease_is_no_longer_listed(self, backend: Backend) -> None:
        for outcome in OUTCOMES.values():
            job = await hold_one(backend)
            await finish(backend, job.lease, outcome)
            assert await backend.insight.leases(MANY) == []
            for other in await claim(backend):
                await finish(backend, other.lease, OUTCOMES["completed"])

    async def test_the_counts_per_minute_queue_and_task_are_kept(self, backend: Backend, clock: ManualClock) -> None:
        clock.advance(timedelta(microseconds=-(clock() % 60_000_000)))  # the start of a minute
        await enqueue(backend, *(a_job() for _ in range(5)), a_job("mail", task="other"))
        minute = clock.now
        clock.advance(60)
        for outcome in ("completed", "retried", "failed", "cancelled", "lost"):
            job = await claim_one(backend)
            clock.advance(1)
            await finish(backend, job.lease, OUTCOMES[outcome])
        counts = {
            (count.minute_at, count.queue, count.task): count for count in await backend.insight.counts(LEASE * 9)
        }
        assert counts[minute, "default", "greet"].enqueued == 5
        assert counts[minute, "mail", "other"].enqueued == 1
        later = counts[minute + timedelta(minutes=1), "default", "greet"]
        assert (later.completed, later.retried, later.failed, later.cancelled, later.rescued) == (1, 1, 1, 1, 1)
        assert later.run_time >= timedelta(seconds=1)

    async def test_counts_are_summed_per_queue_and_task(self, backend: Backend, clock: ManualClock) -> None:
        clock.advance(timedelta(microseconds=-(clock() % 60_000_000)))  # the start of a minute
        first = clock.now
        for _ in range(3):
            await enqueue(backend, a_job(), a_job("mail", task="other"))
            job = await claim_one(backend)
            clock.advance(60)
            await finish(backend, job.lease, OUTCOMES["completed"])
        sums = {(count.queue, count.task): count for count in await backend.insight.counts(LEASE * 99, by_minute=False)}
        assert len(sums) == 2
        assert {count.minute_at for count in sums.values()} == {first}
        assert [count.enqueued for count in sums.values()] == [3, 3]
        assert sum(count.completed for count in sums.values()) == 3
        assert sum((count.run_time for count in sums.values()), timedelta(0)) == timedelta(minutes=3)
        recent = await backend.insight.counts(timedelta(seconds=60), by_minute=False)
        assert sum(count.enqueued for count in recent) == 2

    async def test_counting_stops_at_a_limit_and_says_so(self, backend: Backend) -> None:
        await enqueue(backend, *(a_job() for _ in range(5)), a_job("mail"))
        await enqueue(backend, *(a_job(delay=LEASE) for _ in range(4)))
        default, mail = await backend.insight.queues(3)
        assert (default.name, default.ready, default.scheduled) == ("default", 3, 3)
        assert default.at_least == ("ready", "scheduled")
        assert (mail.ready, mail.at_least) == (1, ("scheduled",))
        default, mail = await backend.insight.queues()
        assert (default.ready, default.scheduled, default.at_least) == (5, 4, ())
        default, mail = await backend.insight.queues(6)
        assert (default.ready, default.scheduled, default.at_least) == (5, 4, ())

    async def test_counting_jobs_of_tasks_stops_at_a_limit_and_says_so(self, backend: Backend) -> None:
        await enqueue(backend, *(a_job() for _ in range(5)), a_job(task="other"))
        await enqueue(backend, *(a_job(delay=LEASE) for _ in range(4)))
        greet, other = await backend.insight.tasks(3)
        assert (greet.name, greet.ready, greet.scheduled) == ("greet", 3, 3)
        assert greet.at_least == ("ready", "scheduled")
        assert (other.ready, other.at_least) == (1, ("scheduled",))
        greet, other = await backend.insight.tasks()
        assert (greet.ready, greet.scheduled, greet.at_least) == (5, 4, ())

    async def test_older_counts_are_left_out(self, backend: Backend, clock: ManualClock) -> None:
        await enqueue(backend, a_job())
        clock.advance(timedelta(hours=2))
        assert await backend.insight.counts(timedelta(hours=1)) == []
        assert len(await backend.insight.counts(timedelta(hours=3))) == 1

    async def test_a_new_store_lists_no_workers(self, backend: Backend) -> None:
        assert await backend.insight.workers() == []
        assert await in_extender(backend, lambda extender: extender.cancel_asked("worker-a")) == []
