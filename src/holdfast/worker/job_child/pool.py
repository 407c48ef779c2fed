"""The pool of job children: processes in which one handler runs at a time, so that a crash affects no other job.

```text
              free place         handler found         JobEnded
   run() ──▶ waiting ──▶ starting ──────────▶ running ──────────▶ outcome; the child waits for its next job
                            │                    │ time limit ──▶ killed: outcome_of_timeout
                            │ │ cannot import    │ died by itself ──▶ Lost: counts against the job
             cannot start   │ ▼                  │ abort ──▶ killed, or notified and killed after a grace
                            │ a ConfigError,     ▼
                            ▼ by policy
                     excused, and retried later
```

A child runs one job at a time, and is reused after a clean end. No more are started at once than there are processors:
after the death of a worker all its jobs run in children, and a start costs a second of CPU time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Final

from holdfast.concurrency.per_process import check_usable
from holdfast.errors import ConfigError
from holdfast.jobs.effect import Settling
from holdfast.jobs.run import outcome_of_error, outcome_of_timeout
from holdfast.jobs.task import Task
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Cancelled, Lost, Outcome, Snoozed
from holdfast.runtime.failure import describe_reason
from holdfast.worker.decision import Why
from holdfast.worker.job_child.importing import REMEDY
from holdfast.worker.job_child.process import ChildProcess, Gone, Word, main_file
from holdfast.worker.job_child.protocol import (
    Began,
    CompletionStage,
    EventsEnded,
    JobEnded,
    Notice,
    RunEvents,
    RunJob,
    Unready,
)

_logger = logging.getLogger("holdfast.worker")
_MAX_JOBS: Final = 1000
_IDLE: Final = 60.0
_START_LIMIT: Final = 60.0
_START_AGAIN: Final = 5.0
_START_AGAIN_AT_MOST: Final = 60.0
_MAX_EXCUSED_STARTS: Final = 10
"""If a child never reaches the handler, its module may be the cause; if the system cannot start a child, it is not."""
_GRACE: Final = 5.0


class HandlerNotFound(Exception):  # noqa: N818 - not an error of ours
    """The handler did not begin, and cannot until something is changed; the text says what."""


class ChildNotStarted(Exception):  # noqa: N818 - as above
    """The child did not reach the handler, perhaps for lack of memory or time; the text says how far it came."""


class _PooledCall:
    """A call in the pool, and the child that runs it."""

    def __init__(self, settlement: Callable[[CompletionStage], None]) -> None:
        self.settlement = settlement
        self.child: ChildProcess | None = None
        self.has_begun = False


class _Attempt(_PooledCall):
    """A job in the pool, from waiting for a slot to its outcome."""

    def __init__(self, task: Task, job: LeasedJob, keeper: Settling | None) -> None:
        super().__init__(self._settlement)
        self.task = task
        self.job = job
        self.work: asyncio.Task[Outcome | None] | None = None
        self.is_broken_off = False
        self.outcome: Outcome | None = None  # of an aborted attempt
        self.killing: asyncio.TimerHandle | None = None
        self._keeper = keeper
        self.stage = CompletionStage.UNSETTLED
        self._is_lost = False

    def _settlement(self, stage: CompletionStage) -> None:
        """Record the stage of the handler's own transaction."""
        self.stage = stage
        if self._keeper is not None:
            getattr(self._keeper, stage.value)(self.job.seq)
        if self._is_lost and stage is CompletionStage.UNSETTLED:
            self.break_off(None)

    def lose(self) -> None:
        """Abort, unless the lease has ended because the job is being completed: then wait for the handler."""
        if self.child is not None:
            self.child.read()  # it reports before it commits, so the messages so far decide
        self._is_lost = True
        if self.stage is CompletionStage.UNSETTLED:
            self.break_off(None)

    def cancel(self) -> None:
        """Notify the handler, and abort it if it has not ended after a grace; one that has not begun never begins."""
        if self.child is None or not self.has_begun:
            self.break_off(Cancelled("cancelled before its handler began, as requested"))
        elif self.killing is None:
            self.child.send_now(Notice(Why.CANCEL_ASKED))
            late = Cancelled(f"cancelled as requested: killed, since it had not ended after {_GRACE:g} s")
            self.killing = asyncio.get_running_loop().call_later(_GRACE, self.break_off, late)

    def break_off(self, outcome: Outcome | None) -> None:
        """Kill the child; `run` returns `outcome`, unless the attempt has already ended."""
        if self.work is not None and not self.is_broken_off:
            self.is_broken_off = True
            self.outcome = outcome
            self.work.cancel()


class ChildPool:
    """Runs jobs in children, at most `limit` at once. All of it on one event loop."""

    def __init__(self, *, lease: timedelta, limit: int, store: str | None = None) -> None:
        """Start nothing yet. `store` is the full URL of the worker's store; None: each child opens the app's store."""
        check_usable()  # a child of a child that imports the program would start it again
        self._lease = lease
        self._store = store
        self._places = asyncio.Semaphore(limit)
        self._starts = asyncio.Semaphore(os.cpu_count() or 1)
        self._idle: list[ChildProcess] = []
        self._attempts: dict[tuple[int, int], _Attempt] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._reported: set[str] = set()

    async def run(
        self, task: Task, job: LeasedJob, *, timeout: float | None, keeper: Settling | None = None
    ) -> Outcome | None:
        """Run a job and return its outcome; by then its child is idle or gone.

        None: there is no outcome to write, since the handler's own transaction has settled the job, or since it was
        aborted by `abort` or `close`. The time limit counts from the beginning of the attempt, not of the waiting.
        `keeper` is notified of the stages of that transaction. Cancelling this coroutine kills the child.
        """
        if self._is_closed:
            message = "this pool of job children is closed"
            raise RuntimeError(message)
        key = (job.seq, job.fence)
        attempt = _Attempt(task, job, keeper)
        attempt.work = asyncio.create_task(self._run(attempt, timeout))
        self._attempts[key] = attempt
        try:
            return await attempt.work
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if not attempt.is_broken_off or (this is not None and this.cancelling()):
                raise
            return None if attempt.stage is CompletionStage.SETTLED else attempt.outcome
        finally:
            del self._attempts[key]
            if attempt.killing is not None:
                attempt.killing.cancel()

    def abort(self, job: LeasedJob, why: Why) -> None:
        """Abort a job; see `Why` for what `run` then returns. A job that does not run here is ignored.

        CANCEL_ASKED notifies the handler, which is killed if it has not ended after a grace; the others kill at once.
        """
        attempt = self._attempts.get((job.seq, job.fence))
        if attempt is None:
            return
        match why:
            case Why.SHUTDOWN:
                attempt.break_off(None)
            case Why.LEASE_LOST:
                attempt.lose()
            case Why.CANCEL_ASKED:
                attempt.cancel()

    async def close(self) -> None:
        """End the idle children, kill the busy ones, and wait until all are gone."""
        self._is_closed = True
        works = [attempt.work for attempt in self._attempts.values() if attempt.work is not None]
        for attempt in list(self._attempts.values()):
            attempt.break_off(None)
        for child in list(self._idle):
            self._retire(child)
        if works:
            await asyncio.wait(works)
        while self._ending:
            await asyncio.wait(self._ending)

    # --- one job ----------------------------------------------------------------------------------------------------

    async def _run(self, attempt: _Attempt, timeout: float | None) -> Outcome | None:
        task, job = attempt.task, attempt.job
        async with self._places:
            try:
                last = await self._run_in_some_child(attempt, self._message(attempt), timeout)
            except (HandlerNotFound, ChildNotStarted, OSError) as error:
                message = f"task {task.name!r} needs a child process, but {error}"
                # Excused attempts other than losses and interruptions: earlier starts, or the handler's own snoozes.
                starts = job.excused - job.interrupted
                if isinstance(error, HandlerNotFound) or (
                    isinstance(error, ChildNotStarted) and starts >= _MAX_EXCUSED_STARTS
                ):
                    return outcome_of_error(task, job, ConfigError(message))
                delay = min(_START_AGAIN * 2 ** min(starts, 10), _START_AGAIN_AT_MOST)
                _logger.warning("job %s was not begun, retrying in %g s: %s", job.id, delay, message)
                return Snoozed(timedelta(seconds=delay))
        return _outcome(attempt, last, timeout)

    async def call(
        self, run: RunEvents, *, timeout: float | None, settlement: Callable[[CompletionStage], None]
    ) -> Word | None:
        """Handle events in a child; return its last message, or None if it was killed at its time limit.

        Raises `HandlerNotFound`, `ChildNotStarted` and `OSError` if the handler did not begin. Cancelling this
        coroutine kills the child.
        """
        if self._is_closed:
            message = "this pool of job children is closed"
            raise RuntimeError(message)
        _require_main_file(run.module)
        async with self._places:
            return await self._run_in_some_child(_PooledCall(settlement), run, timeout)

    async def _run_in_some_child(
        self, attempt: _PooledCall, run: RunJob | RunEvents, timeout: float | None
    ) -> Word | None:
        while True:
            while self._idle:
                try:
                    return await self._run_in(self._take_idle(), attempt, run, timeout=timeout)
                except (HandlerNotFound, ChildNotStarted):
                    continue  # it died while idle, or has an outdated import path
            with ExitStack() as starting:
                await self._starts.acquire()
                starting.callback(self._starts.release)
                if not self._idle:
                    child = ChildProcess(store=self._store, gone=self._gone)
                    try:
                        return await self._run_in(child, attempt, run, timeout=timeout, starting=starting)
                    except HandlerNotFound as error:
                        self._report(str(error))
                        raise

    def _report(self, problem: str) -> None:
        """Log at once, and once, what must be changed; the attempts of each job fail with the same words."""
        if problem not in self._reported:
            self._reported.add(problem)
            _logger.error("a handler cannot run in a child process: %s", problem)

    def _message(self, attempt: _Attempt) -> RunJob:
        reference = attempt.task.reference
        if reference is None:
            message = (
                f"{attempt.task.handler.__qualname__} is defined inside a function: move it to the top of a module"
            )
            raise HandlerNotFound(message)
        module, qualname = reference
        _require_main_file(module)
        # A store may return a subclass, which need not encode like the plain job.
        job = LeasedJob(**{name: getattr(attempt.job, name) for name in LeasedJob.__struct_fields__})
        return RunJob(module, qualname, attempt.task.name, job, self._lease)

    async def _run_in(
        self,
        child: ChildProcess,
        attempt: _PooledCall,
        run: RunJob | RunEvents,
        *,
        timeout: float | None,
        starting: ExitStack | None = None,
    ) -> Word | None:
        last: Word | None = None
        attempt.child = child
        child.settlement = attempt.settlement
        child.jobs += 1
        try:
            await child.send(run)
            await _begin(child)
            if starting is not None:
                starting.close()
            attempt.has_begun = True
            last = await _last_word(child, timeout)
        finally:
            if not isinstance(last, JobEnded | EventsEnded):
                child.kill()
                await child.wait()  # for its last messages, and before another process may run the same job
            attempt.child = child.settlement = None
            if isinstance(last, JobEnded | EventsEnded):
                self._put_away(child, is_clean=last.clean)
        return last

    # --- idle children ----------------------------------------------------------------------------------------------

    def _take_idle(self) -> ChildProcess:
        child = self._idle.pop()
        if child.idle_timer is not None:
            child.idle_timer.cancel()
        return child

    def _put_away(self, child: ChildProcess, *, is_clean: bool) -> None:
        if not is_clean or self._is_closed or child.jobs >= _MAX_JOBS or child.is_gone:
            self._end(child)
            return
        self._idle.append(child)
        child.idle_timer = asyncio.get_running_loop().call_later(_IDLE, self._retire, child)

    def _retire(self, child: ChildProcess) -> None:
        self._gone(child)
        self._end(child)

    def _gone(self, child: ChildProcess) -> None:
        """Remove a child that has ended."""
        if child in self._idle:
            self._idle.remove(child)
        if child.idle_timer is not None:
            child.idle_timer.cancel()

    def _end(self, child: ChildProcess) -> None:
        ending = asyncio.create_task(child.end(_GRACE))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


def _outcome(attempt: _Attempt, last: Word | None, timeout: float | None) -> Outcome | None:
    """Return the outcome of a job from the last message of its child; None: there is no outcome to write."""
    match last:
        case JobEnded(outcome):
            return outcome
        case _ if attempt.stage is CompletionStage.SETTLED:
            return None  # the job is completed, whatever happened afterwards
        case Gone() as gone:
            # It may have completed the job in its own transaction and died before it could report that. Then the store
            # answers this outcome with LOST, since the lease has ended, and the job stays completed.
            return Lost(describe_reason("WorkerLost", f"the child process {gone} while it ran this job"))
        case _:
            return outcome_of_timeout(attempt.task, attempt.job, timeout or 0.0)


def _require_main_file(module: str) -> None:
    if module == "__main__" and main_file() is None:
        message = (
            "it is defined in a __main__ that has no file (a REPL, or python -c), so a child process cannot load "
            "it: move it to a module"
        )
        raise HandlerNotFound(message)


async def _begin(child: ChildProcess) -> None:
    """Wait until the child has found the handler; a failure before that does not count against the job."""
    try:
        async with asyncio.timeout(_START_LIMIT):
            word = await child.receive()
    except TimeoutError:
        message = f"it had not imported the handler after {_START_LIMIT:g} s: {REMEDY}"
        raise ChildNotStarted(message) from None
    match word:
        case Began():
            return
        case Unready(reason):
            raise HandlerNotFound(reason)
        case Gone() as gone:
            message = f"it {gone} before it had imported the handler: see its standard error for the reason"
            raise ChildNotStarted(message)
        case JobEnded() | EventsEnded():
            message = "it reported the end of an attempt that it had not begun"
            raise HandlerNotFound(message)


async def _last_word(child: ChildProcess, timeout: float | None) -> Word | None:
    """Return the last message of the child; None: it was killed at the time limit."""
    try:
        async with asyncio.timeout(timeout):
            return await child.receive()
    except TimeoutError:
        child.kill()
        word = await child.receive()
        return word if isinstance(word, JobEnded | EventsEnded) else None  # it ended at the same moment
