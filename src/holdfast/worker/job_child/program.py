"""A job child: a process that runs handlers one by one; run as `python -m holdfast.worker.job_child.program <fd>`.

```text
   main thread     finds the handler, runs the event loop or the plain function, and between jobs waits for the next
   a thread        reads the socket: hands jobs over, sets signals, and ends the process when the worker is gone
   a thread        runs plain functions that take a context, whose blocking calls need a running loop
```

The loop does not run between jobs and while a plain function runs, so neither the function nor an import sees a running
loop, and leftover tasks of a handler do not run during the next job. A child with such leftovers is not used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import inspect
import logging
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from holdfast.errors import ConfigError, TransactionConflict
from holdfast.hooks.middleware import HandlerCall
from holdfast.jobs.batch_context import BatchContext
from holdfast.jobs.context import Context
from holdfast.jobs.run import arguments_of, is_completed, outcome_of_error, outcome_of_value, repeated
from holdfast.jobs.run_batch import calls_of_jobs, check_returned
from holdfast.model.outcome import Outcome
from holdfast.runtime.parent_death import die_with
from holdfast.runtime.threads import Threads
from holdfast.store.backend import Backend
from holdfast.worker.decision import Why
from holdfast.worker.endings import CANCELLED_AS_ASKED, cancelled_by_itself, once_settled
from holdfast.worker.job_child.event_call import ChildEventCall
from holdfast.worker.job_child.importing import Finder, Handle
from holdfast.worker.job_child.protocol import (
    DEAF_TO,
    Began,
    CompletionStage,
    Frames,
    FromChild,
    Hello,
    JobEnded,
    Notice,
    RunEvents,
    RunJob,
    Settlement,
    ToChild,
    Unready,
    encode,
    to_child,
)

_logger = logging.getLogger("holdfast.worker")
_ORPHANED: Final = 4  # the worker, which would read this code, is gone
_CHUNK: Final = 64 * 1024


class ParentConnection:
    """The child's end of the socket."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)  # child processes of a handler must not keep it open
        self._socket.settimeout(None)
        self._lock = threading.Lock()

    def send(self, message: FromChild) -> None:
        """Send a message, from any thread; end the process if the worker is gone."""
        data = encode(message)
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError:
            os._exit(_ORPHANED)

    def messages(self) -> Iterator[ToChild]:
        """Yield the worker's messages until it is gone."""
        frames = Frames(to_child)
        while data := self._received():
            yield from frames.feed(data)

    def _received(self) -> bytes:
        try:
            return self._socket.recv(_CHUNK)
        except ConnectionResetError:  # the worker was killed with unread messages
            return b""

    # `Settling`, the keeper of a context's lease: the worker extends it, so these report to the worker.

    def report(self, stage: CompletionStage) -> None:
        """Report a stage of the handler's own transaction."""
        self.send(Settlement(stage))

    def settling(self, seq: int) -> None:
        """Report that the job is being completed, so that its lease may end."""
        del seq
        self.report(CompletionStage.SETTLING)

    def settled(self, seq: int) -> None:
        """Report that the job was completed."""
        del seq
        self.report(CompletionStage.SETTLED)

    def unsettled(self, seq: int) -> None:
        """Report that the job was not completed."""
        del seq
        self.report(CompletionStage.UNSETTLED)


class ChildAttempt:
    """One run of a job's handler, and the abort that it may receive meanwhile."""

    def __init__(self, handle: Handle, run: RunJob, *, link: ParentConnection, threads: Threads) -> None:
        self._handle = handle
        self._task = handle.task
        self._run = run
        self._link = link
        self._threads = threads
        self._middleware = handle.app.hooks.middleware
        self._context: Context | None = None
        self._batch: BatchContext[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._coroutine: asyncio.Task[Any] | None = None
        self._aborted: Why | None = None
        self.backend: Backend | None = None
        """The store, if the handler takes a context; otherwise this process needs no connection."""
        self.is_clean = True
        """Whether it left nothing behind that could affect the next job."""

    def stop(self, why: Why) -> None:
        """Set the context's signal and cancel an async handler; called by the reading thread, perhaps too late."""
        self._aborted = why
        context, loop, coroutine = self._context, self._loop, self._coroutine
        for call in () if self._batch is None else self._batch.calls_given:
            (call.lease_lost if why is Why.LEASE_LOST else call.cancel_asked).set()
        if context is not None:
            (context.lease_lost if why is Why.LEASE_LOST else context.cancel_asked).set()
        if loop is not None and coroutine is not None:
            loop.call_soon_threadsafe(coroutine.cancel)

    def run(self, runner: asyncio.Runner) -> Outcome | None:
        """Run the handler; return the outcome to write, or None. Its context variables end with it."""
        is_plain = self._task.signature.context is None and not inspect.iscoroutinefunction(self._task.handler)
        if is_plain and not self._middleware.needs_loop:
            return contextvars.copy_context().run(self._run_plain)
        return runner.run(self._run_in_loop(), context=contextvars.copy_context())

    def _run_plain(self) -> Outcome:
        task, job = self._task, self._run.job
        asyncio.set_event_loop(None)  # as in a thread: the handler finds no event loop that it could close
        try:
            args, kwargs = arguments_of(task, job, None)
        except Exception as error:  # noqa: BLE001 - every end of a handler becomes an outcome
            return self._outcome_of_error(error)
        run = partial(task.handler, *args, **kwargs)
        if self._middleware:
            run = partial(self._middleware.around_plain, self._handler_call(args, kwargs), run)
        value, raised = _call(run)
        return outcome_of_value(task, job, value) if raised is None else self._outcome_of_error(raised)

    def _handler_call(self, args: list[Any], kwargs: dict[str, Any]) -> HandlerCall:
        job = self._run.job
        return HandlerCall("task", job.task, job.attempt, args, kwargs, jobs=(job,))

    def _outcome_of_error(self, error: BaseException) -> Outcome:
        if isinstance(error, MemoryError):
            self.is_clean = False
        return outcome_of_error(self._task, self._run.job, error)

    async def _run_in_loop(self) -> Outcome | None:
        self._loop = asyncio.get_running_loop()
        task, job = self._task, self._run.job
        outcome: Outcome | None
        try:
            if task.signature.context is not None:
                self.backend = self._handle.app.backend
                await self.backend.open()
                if task.batch is None:
                    self._context = Context(job, self.backend, lease=self._run.lease, keeper=self._link)
            outcome = await repeated(self._once, may_repeat=self._may_repeat, failed=self._after_conflict)
        except asyncio.CancelledError:
            outcome = self._broken_off()
        except BaseException as error:  # noqa: BLE001 - every end of a handler becomes an outcome
            outcome = self._outcome_of_error(error)
        if outcome is None or self.backend is None:
            return outcome
        return await once_settled(self._context, self.backend, outcome)

    async def _once(self) -> Outcome | None:
        if self._task.batch is not None:
            return await self._once_as_batch()
        if self._context is not None:
            self._context.begun()
        args, kwargs = arguments_of(self._task, self._run.job, self._context)
        return outcome_of_value(self._task, self._run.job, await self._call(args, kwargs))

    async def _once_as_batch(self) -> Outcome | None:
        """Run a handler of batches for this job alone."""
        task, job, backend = self._task, self._run.job, self._handle.app.backend
        calls, unread = calls_of_jobs(task, [job])
        if not calls:
            return unread[job.seq]
        self._batch = BatchContext(calls, backend, lease=self._run.lease, keeper=_OneJob(self._link, job.seq))
        raised: BaseException | None = None
        try:
            check_returned(task, await self._call([self._batch, self._batch.calls], {}))
        except (asyncio.CancelledError, TransactionConflict):
            raise
        except BaseException as error:  # noqa: BLE001 - every end of a handler becomes an outcome
            raised = error
            self.is_clean = self.is_clean and not isinstance(error, MemoryError)
        return self._batch.outcomes(raised)[0]

    def _may_repeat(self) -> bool:
        return self._aborted is None and not is_completed(self._context) and not self._has_committed()

    def _has_committed(self) -> bool:
        return self._batch is not None and self._batch.effect.is_committed

    def _after_conflict(self, conflict: TransactionConflict) -> Outcome | None:
        return self._outcome_of_error(conflict) if self._aborted is None else self._broken_off()

    async def _call(self, args: list[Any], kwargs: dict[str, Any]) -> object:
        run = partial(self._task.handler, *args, **kwargs)
        middleware, call = self._middleware, self._handler_call(args, kwargs)
        if inspect.iscoroutinefunction(self._task.handler):
            before = asyncio.all_tasks()
            self._coroutine = asyncio.create_task(_contained(middleware.around(call, run) if middleware else run()))
            if self._aborted is not None:  # while the store was being opened
                asyncio.get_running_loop().call_soon(self._coroutine.cancel)  # after its first step
            value, error = await self._coroutine
            if asyncio.all_tasks() - before:
                self.is_clean = False
        else:
            value, error = await _contained(middleware.around_thread(call, run, self._start))
        if error is not None:
            raise error
        return value

    async def _start(self, run: Callable[[], Any]) -> object:
        value, error = await self._threads.run(lambda: _call(run))
        if error is not None:
            raise error
        return value

    def _broken_off(self) -> Outcome | None:
        if self._aborted is None:
            return None if self._has_committed() else outcome_of_error(self._task, self._run.job, cancelled_by_itself())
        return CANCELLED_AS_ASKED if self._aborted is Why.CANCEL_ASKED else None


class _OneJob:
    """The keeper of a batch of one."""

    def __init__(self, link: ParentConnection, seq: int) -> None:
        self.settling, self.settled, self.unsettled = (
            partial(act, seq) for act in (link.settling, link.settled, link.unsettled)
        )


# These two return the exception, so that SystemExit and the like do not propagate through the event loop and end it.


async def _contained(coroutine: Any) -> tuple[object, BaseException | None]:
    try:
        return await coroutine, None
    except BaseException as error:  # noqa: BLE001
        return None, error


def _call(run: Callable[[], Any]) -> tuple[object, BaseException | None]:
    try:
        return run(), None
    except BaseException as error:  # noqa: BLE001
        return None, error


class ChildProgram:
    """The main loop of this process: runs one job after another, until the worker sends `NoMoreJobs`."""

    def __init__(self, link: ParentConnection) -> None:
        self._link = link
        self._inbox: queue.SimpleQueue[ToChild] = queue.SimpleQueue()
        self._attempt: ChildAttempt | None = None
        self._threads = Threads("holdfast-handler")
        self._backends: dict[int, Backend] = {}

    def live(self) -> None:
        """Serve the worker until it sends `NoMoreJobs`."""
        threading.Thread(target=self._listen, name="holdfast-listen", daemon=True).start()
        hello = self._inbox.get()
        if not isinstance(hello, Hello):
            message = f"the first message of the worker is {type(hello).__name__}, not Hello"
            raise TypeError(message)
        die_with(hello.worker)
        finder = Finder(hello, lambda problem: self._link.send(Unready(problem)))
        with asyncio.Runner() as runner:
            while isinstance(run := self._inbox.get(), RunJob | RunEvents):
                self._serve(finder, run, runner)
            runner.run(self._close())
        self._threads.close()

    def _listen(self) -> None:
        try:
            for message in self._link.messages():
                if isinstance(message, Notice):
                    if self._attempt is not None:
                        self._attempt.stop(message.why)
                else:
                    self._inbox.put(message)
        except Exception:  # noqa: BLE001 - any error ends this process
            traceback.print_exc()  # to the worker's standard error: probably incompatible versions
        finally:  # the worker is gone, or incompatible: run nothing more
            os._exit(_ORPHANED)

    def _serve(self, finder: Finder, run: RunJob | RunEvents, runner: asyncio.Runner) -> None:
        try:
            call = self._found(finder, run)
        except ConfigError as error:
            self._link.send(Unready(str(error)))
            return
        self._link.send(Began())
        if isinstance(call, ChildEventCall):
            ended: FromChild = call.run(runner)
        else:
            self._attempt = call
            ended = JobEnded(call.run(runner), clean=call.is_clean)
            self._attempt = None
        if call.backend is not None:
            self._backends[id(call.backend)] = call.backend
        _flush()
        self._link.send(ended)

    def _found(self, finder: Finder, run: RunJob | RunEvents) -> ChildAttempt | ChildEventCall:
        if isinstance(run, RunEvents):
            return ChildEventCall(finder.find_consumer(run), run, link=self._link, threads=self._threads)
        return ChildAttempt(finder.find(run), run, link=self._link, threads=self._threads)

    async def _close(self) -> None:
        for backend in self._backends.values():
            await backend.close()


def _flush() -> None:
    """Write out what the handler printed: the next one may die with the buffer."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed or replaced
            stream.flush()


def _ignore(number: int, frame: object) -> None:
    """Do nothing. Not SIG_IGN, which child processes of the handler would inherit."""


def main() -> None:
    """Run a child on the socket whose descriptor is the argument."""
    for number in DEAF_TO:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DEAF_TO)
    faulthandler.enable()
    ChildProgram(ParentConnection(int(sys.argv[1]))).live()


if __name__ == "__main__":
    main()
