"""Limits of queues and tasks: how many jobs run at once, and at what rate they start."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.model.limits import Limit, LimitKey
from holdfast.store.backend import Backend
from holdfast.store.values import Claim, ClaimRequest
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    LEASE,
    MANY,
    OUTCOMES,
    Conformance,
    a_job,
    claim,
    enqueue,
    finish,
    queue_view,
)

MAIL = LimitKey("queue", "mail")
GREET = LimitKey("task", "greet")
BOTH = ("greet", "other")


async def ask(
    backend: Backend, limit: int = MANY, *, slots: int | None = None, queues: tuple[str, ...] | None = None
) -> Claim:
    """Return the whole answer to a claim of both tasks."""
    request = ClaimRequest(worker_id="worker-a", tasks=BOTH, limit=limit, lease=LEASE, slots=slots, queues=queues)
    return await backend.jobs.claim(request)


class TestRunningLimits(Conformance):
    """At most N running per queue or task."""

    async def test_a_claim_takes_no_more_than_the_queue_allows(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=2))
        ids = await enqueue(backend, *(a_job("mail") for _ in range(5)))
        first = await ask(backend)
        assert ([job.id for job in first.jobs], first.is_limited, first.wait) == (ids[:2], True, None)
        second = await ask(backend)
        assert (second.jobs, second.is_limited, second.wait) == ([], True, None)

    async def test_the_end_of_a_job_frees_its_slot(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=1))
        ids = await enqueue(backend, a_job("mail"), a_job("mail"), a_job("mail"), a_job("mail"))
        for outcome, job_id in zip(("completed", "failed", "cancelled"), ids, strict=False):
            (job,) = await claim(backend)
            assert job.id == job_id
            assert await claim(backend) == []
            await finish(backend, job.lease, OUTCOMES[outcome])
        assert [job.id for job in await claim(backend)] == ids[3:]

    async def test_a_release_frees_the_slot_and_a_stale_one_frees_nothing(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=1))
        await enqueue(backend, a_job("mail"), a_job("mail"))
        (job,) = await claim(backend)
        await backend.jobs.release([job.lease], started=False)
        (again,) = await claim(backend)
        assert again.id == job.id
        await backend.jobs.release([job.lease], started=False)
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await claim(backend) == []

    async def test_an_expired_lease_holds_its_slot_until_it_is_rescued(
        self, backend: Backend, clock: ManualClock
    ) -> None:
        await backend.queues.limit(GREET, Limit(running=1))
        await enqueue(backend, a_job("mail"), a_job("mail"))
        (job,) = await claim(backend)
        clock.advance(LEASE * 2)
        assert await claim(backend) == []
        await backend.jobs.rescue(None, MANY)
        assert [each.id for each in await claim(backend)] == [job.id]

    async def test_a_limit_of_a_task_counts_over_all_queues(self, backend: Backend) -> None:
        await backend.queues.limit(GREET, Limit(running=2))
        await enqueue(backend, a_job("mail"), a_job("sale"), a_job("mail"), a_job("mail", task="other"))
        assert [(job.queue, job.task) for job in (await ask(backend)).jobs] == [
            ("mail", "greet"), ("sale", "greet"), ("mail", "other"),
        ]  # fmt: skip

    async def test_limits_of_a_queue_and_of_a_task_hold_both(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=3))
        await backend.queues.limit(GREET, Limit(running=1))
        await enqueue(backend, *(a_job("mail") for _ in range(3)), *(a_job("mail", task="other") for _ in range(3)))
        assert [job.task for job in (await ask(backend)).jobs] == ["greet", "other", "other"]

    async def test_jobs_over_a_limit_do_not_hold_back_others(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=1))
        await enqueue(backend, *(a_job("mail", priority=9) for _ in range(20)))
        others = await enqueue(backend, *(a_job("sale") for _ in range(3)))
        found = await ask(backend, 4)
        assert [job.id for job in found.jobs[1:]] == others
        more = await enqueue(backend, a_job("sale"))
        assert [job.id for job in (await ask(backend, 4)).jobs] == more

    async def test_jobs_under_a_limit_keep_their_turn_among_others(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=5))
        ids = await enqueue(backend, a_job("sale"), a_job("mail"), a_job("sale"), a_job("mail"))
        assert [job.id for job in (await ask(backend, 3)).jobs] == ids[:3]
        assert [job.id for job in (await ask(backend, 3)).jobs] == ids[3:]

    async def test_a_lowered_limit_waits_for_running_jobs_and_a_removed_one_is_gone(self, backend: Backend) -> None:
        await enqueue(backend, *(a_job("mail") for _ in range(6)))
        held = await claim(backend, 3)
        await backend.queues.limit(MAIL, Limit(running=2))
        await finish(backend, held[0].lease, OUTCOMES["completed"])
        assert await claim(backend) == []
        await finish(backend, held[1].lease, OUTCOMES["completed"])
        assert len(await claim(backend)) == 1
        await backend.queues.limit(MAIL, None)
        assert len(await claim(backend)) == 2
        assert await backend.insight.limits() == []

    async def test_concurrent_claims_together_take_no_more_than_the_limit(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=3))
        await enqueue(backend, *(a_job("mail") for _ in range(30)))
        found = await asyncio.gather(*(claim(backend, 2, worker_id=f"w{number}") for number in range(12)))
        assert 1 <= sum(map(len, found)) <= 3
        assert len(await claim(backend)) == 3 - sum(map(len, found))

    async def test_a_claimer_takes_no_more_limited_jobs_than_it_has_slots(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=10))
        await enqueue(backend, *(a_job("mail") for _ in range(4)), *(a_job("sale") for _ in range(4)))
        found = await ask(backend, 6, slots=1)
        assert [job.queue for job in found.jobs] == ["mail", "sale", "sale", "sale", "sale"]
        assert found.is_limited

    async def test_a_claim_reports_which_of_its_jobs_limits_concern(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=10))
        await backend.queues.limit(LimitKey("task", "other"), Limit(rate="1/s"))
        await enqueue(backend, a_job("sale"), a_job("mail"), a_job("sale", task="other"), a_job("sale"))
        found = await ask(backend)
        assert [job.seq in found.limited for job in found.jobs] == [False, True, True, False]
        assert len(found.limited) == 2

    async def test_limited_jobs_are_left_to_do(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=1))
        await enqueue(backend, a_job("mail"), a_job("mail"))
        await claim(backend)
        left = await backend.jobs.outstanding(("greet",), None)
        assert (left.ready, left.running, left.is_empty) == (1, 1, False)

    async def test_a_paused_queue_with_a_limit_is_not_claimed(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=1))
        await enqueue(backend, a_job("mail"))
        await backend.queues.pause("mail")
        assert (await ask(backend)) == Claim([])

    async def test_a_claim_of_other_queues_knows_nothing_of_the_limit(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=1))
        await enqueue(backend, a_job("mail"), a_job("mail"), a_job("sale"))
        found = await ask(backend, queues=("sale",))
        assert ([job.queue for job in found.jobs], found.is_limited) == (["sale"], False)


class TestRateLimits(Conformance):
    """Starts per time."""

    async def test_a_burst_at_once_then_one_per_step(self, backend: Backend, clock: ManualClock) -> None:
        await backend.queues.limit(MAIL, Limit(rate="60/m", burst=3))
        ids = await enqueue(backend, *(a_job("mail") for _ in range(8)))
        first = await ask(backend)
        assert ([job.id for job in first.jobs], first.is_limited) == (ids[:3], True)
        assert first.wait == timedelta(seconds=1)
        second = await ask(backend)
        assert (second.jobs, second.is_limited, second.wait) == ([], True, timedelta(seconds=1))
        clock.advance(timedelta(seconds=1))
        assert [job.id for job in await claim(backend)] == ids[3:4]
        clock.advance(timedelta(seconds=2.5))
        assert [job.id for job in await claim(backend)] == ids[4:6]
        assert (await ask(backend)).wait == timedelta(seconds=0.5)

    async def test_a_rate_is_not_saved_up_beyond_the_burst(self, backend: Backend, clock: ManualClock) -> None:
        await backend.queues.limit(GREET, Limit(rate="2/s", burst=2))
        await enqueue(backend, *(a_job("mail") for _ in range(9)))
        clock.advance(timedelta(hours=1))
        assert len(await claim(backend)) == 2
        clock.advance(timedelta(hours=1))
        assert len(await claim(backend)) == 2

    async def test_the_end_of_a_job_does_not_give_the_rate_back(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(rate="1/m"))
        await enqueue(backend, a_job("mail"), a_job("mail"))
        (job,) = await claim(backend)
        await finish(backend, job.lease, OUTCOMES["completed"])
        assert await claim(backend) == []

    async def test_a_rate_and_a_number_hold_both(self, backend: Backend, clock: ManualClock) -> None:
        await backend.queues.limit(MAIL, Limit(running=2, rate="1/s", burst=5))
        await enqueue(backend, *(a_job("mail") for _ in range(9)))
        assert len(await claim(backend)) == 2
        clock.advance(timedelta(seconds=60))
        assert await claim(backend) == []


class TestLimitSettings(Conformance):
    """Setting, declaring and listing limits."""

    async def test_limits_are_listed_with_their_use(self, backend: Backend) -> None:
        await backend.queues.limit(MAIL, Limit(running=4, rate="90/m", burst=2))
        await backend.queues.limit(GREET, Limit(running=7))
        await enqueue(backend, a_job("mail"))
        await claim(backend)
        uses = await backend.insight.limits()
        assert [(use.key, use.limit, use.running) for use in uses] == [
            (MAIL, Limit(running=4, rate="90/m", burst=2), 1),
            (GREET, Limit(running=7), 1),
        ]
        assert (await queue_view(backend, "mail")).limit == Limit(running=4, rate="90/m", burst=2)
        (task,) = await backend.insight.tasks()
        assert (task.name, task.limit) == ("greet", Limit(running=7))

    async def test_a_declaration_is_written_once_and_leaves_an_operators_limit(self, backend: Backend) -> None:
        declared = {MAIL: Limit(running=4), GREET: None}
        assert await backend.queues.declare(declared) == [MAIL]
        await backend.queues.limit(MAIL, Limit(running=1))
        assert await backend.queues.declare(declared) == []
        assert (await queue_view(backend, "mail")).limit == Limit(running=1)
        assert await backend.queues.declare({MAIL: Limit(running=5)}) == [MAIL]
        assert (await queue_view(backend, "mail")).limit == Limit(running=5)

    async def test_a_declaration_that_is_gone_from_the_code_removes_the_limit(self, backend: Backend) -> None:
        await backend.queues.declare({GREET: Limit(running=4)})
        assert await backend.queues.declare({GREET: None}) == [GREET]
        assert await backend.insight.limits() == []
        assert await backend.queues.declare({GREET: None}) == []
