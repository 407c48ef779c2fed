"""Tasks for job children: each ends in its own way. The smallest app that a child can do with."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from holdfast.app.open import open_backend
from holdfast.hooks.observers import Hooks
from holdfast.jobs.context import Context
from holdfast.jobs.task import make_task
from holdfast.model.outcome import Cancel, Retry, Snooze

URL = "CHILDREN_APP_URL"


class App:
    """A store, by the URL in the environment, and no middleware."""

    hooks = Hooks()

    @cached_property
    def backend(self):
        return open_backend(os.environ[URL])


class Handle:
    """A task and its app."""

    def __init__(self, function, name=None):
        self.app = app
        self.task = make_task(
            function,
            name=name,
            queue="default",
            max_attempts=5,
            priority=0,
            timeout=None,
            retry=None,
            executor="process",
        )


app = App()


def say(mark: str, text: str) -> None:
    """Tell the test how far the handler is: written whole, or not at all."""
    part = Path(f"{mark}.part")
    part.write_text(text)
    part.rename(mark)


@Handle
def add(a: int, b: int) -> int:
    return a + b


@Handle
async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@Handle
def add_without_await(a: int, b: int) -> object:
    return add_async.task.handler(a, b)


@Handle
def whoami() -> tuple[int, int, int]:
    return os.getpid(), os.getpgid(0), os.getppid()


@Handle
def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@Handle
def raise_error(text: str) -> None:
    raise ValueError(text)


@Handle
async def exit_politely(code: int) -> None:
    sys.exit(code)


@Handle
def ask_for_retry(delay: float) -> None:
    raise Retry(delay, "not yet")


@Handle
async def ask_for_snooze(delay: float) -> None:
    raise Snooze(delay)


@Handle
def give_up(reason: str) -> None:
    raise Cancel(reason)


@Handle
def exit_at_once(code: int) -> None:
    os._exit(code)


@Handle
def kill_oneself(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


@Handle
def read_nothing() -> None:
    ctypes.string_at(0)


@Handle
def use_all_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 1024 * 1024, resource.RLIM_INFINITY))
    bytearray(1024 * 1024 * 1024)


@Handle
def hold_the_interpreter(seconds: int) -> None:
    ctypes.PyDLL(None).sleep(seconds)


@Handle
def sleep(mark: str, seconds: float) -> None:
    say(mark, str(os.getpid()))
    time.sleep(seconds)


@Handle
async def sleep_async(mark: str, seconds: float) -> None:
    say(mark, str(os.getpid()))
    await asyncio.sleep(seconds)


@Handle
def wait_for_cancel(mark: str, ctx: Context) -> str:
    say(mark, str(os.getpid()))
    if ctx.cancel_asked.wait_blocking(30):
        raise Cancel("I was asked to")
    return "nobody asked"


@Handle
async def wait_for_loss(mark: str, ctx: Context) -> None:
    try:
        say(mark, "began")
        await asyncio.sleep(30)
    finally:
        say(mark, "lost" if ctx.lease_lost else "kept")


@Handle
def leave_a_process_behind(mark: str) -> None:
    """Die with a process below that keeps every descriptor open that it was left."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    say(mark, str(process.pid))
    os._exit(7)


@Handle
def leave_a_fork_behind(mark: str) -> None:
    """Die with a forked process below, which has the connection too."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    say(mark, str(pid))
    os._exit(7)


@Handle
def close_every_descriptor() -> None:
    os.closerange(3, 1000)


_left: list[asyncio.Task[None]] = []


@Handle
async def leave_a_task_behind() -> int:
    _left.append(asyncio.create_task(asyncio.sleep(60)))
    return os.getpid()


@Handle
async def leave_a_task_behind_and_raise() -> None:
    _left.append(asyncio.create_task(asyncio.sleep(60)))
    raise ValueError(os.getpid())


@Handle
async def effect(text: str, ctx: Context) -> None:
    ctx.result = f"wrote {text}"
    async with ctx.transaction() as connection:
        await connection.execute("insert into effect (text) values (?)", (text,))


@Handle
def effect_blocking(text: str, ctx: Context) -> None:
    with ctx.sync.transaction() as connection:
        connection.execute("insert into effect (text) values (?)", (text,))


@Handle
async def effect_undone(text: str, ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("insert into effect (text) values (?)", (text,))
        raise ValueError(text)


@Handle
async def effect_and_death(text: str, ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("insert into effect (text) values (?)", (text,))
    os.kill(os.getpid(), signal.SIGKILL)


@Handle
async def effect_and_more(mark: str, ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("insert into effect (text) values (?)", (mark,))
    say(mark, "committed")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await ctx.lease_lost.wait()
    say(mark, "finished")


@Handle
async def report_progress(ctx: Context) -> int:
    await ctx.progress(50, "half-way")
    return ctx.job.lease.fence


def unwrapped() -> None:
    pass


Handle(unwrapped)  # registered, but the module keeps the plain function under its name


def replaced() -> None:
    pass


first_of_two = Handle(replaced, name="first_of_two")
replaced = Handle(replaced, name="second_of_two")  # type: ignore[assignment]

LEASE = timedelta(seconds=30)
