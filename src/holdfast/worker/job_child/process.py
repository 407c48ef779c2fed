"""The worker's side of a job child: a new interpreter process, connected by a socket.

It is not forked: the worker has threads and connections. It stays in the worker's process group, so that a signal to
the group kills it too, and it exits when the socket is closed.

Everything here happens on the event loop, but for one thread per child that waits for the process to end. That thread
leaves the process unreaped; the loop reaps it, so no signal is ever sent to a process id that was reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from typing import Final

import msgspec

from holdfast.worker.job_child.protocol import (
    DEAF_TO,
    Began,
    CompletionStage,
    EventsEnded,
    Frames,
    FromChild,
    Hello,
    JobEnded,
    MainFile,
    NoMoreJobs,
    Settlement,
    ToChild,
    Unready,
    encode,
    from_child,
)

_CHUNK: Final = 64 * 1024


class Gone(msgspec.Struct, frozen=True):
    """The process has ended: its exit code, or the number of the signal that killed it, negative."""

    code: int

    def __str__(self) -> str:
        """Describe how it ended, as a predicate."""
        if self.code >= 0:
            return f"ended by itself with exit code {self.code}"
        try:
            name = f" ({signal.Signals(-self.code).name})"
        except ValueError:  # real-time signals have no name
            name = ""
        reason = ", as the system does when memory runs out," if -self.code == signal.SIGKILL else ""
        return f"was killed by signal {-self.code}{name}{reason}"


Word = Began | Unready | JobEnded | EventsEnded | Gone


class ChildProcess:
    """A child process that runs one job after another, and the connection to it."""

    def __init__(self, *, store: str | None, gone: Callable[[ChildProcess], None]) -> None:
        """Start the process; raises OSError if the system refuses. `gone` is called after it was reaped.

        `store` is the full URL of the worker's store. It is sent only over the socket: it may contain a password.
        """
        self._loop = asyncio.get_running_loop()
        self._on_gone = gone
        self._frames = Frames(from_child)
        self._words: asyncio.Queue[Word] = asyncio.Queue()
        self._gone = asyncio.Event()
        self.settlement: Callable[[CompletionStage], None] | None = None
        """Called with each stage of the handler's own transaction."""
        self.jobs = 0
        """The number of jobs that it was given."""
        self.idle_timer: asyncio.TimerHandle | None = None
        path = [os.fsencode(place) for place in sys.path]
        self._unsent = encode(
            Hello(os.getpid(), path, main_file(), store=None if store is None else os.fsencode(store))
        )
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                with _blocked(DEAF_TO):  # until the child has installed its handlers
                    self._process = subprocess.Popen(  # noqa: S603 - a module of this package
                        [sys.executable, "-P", "-m", "holdfast.worker.job_child.program", str(theirs.fileno())],
                        stdin=subprocess.DEVNULL,
                        pass_fds=(theirs.fileno(),),
                    )
            except BaseException:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        try:
            threading.Thread(target=self._wait, name=f"holdfast-child-{self.pid}", daemon=True).start()
        except RuntimeError as error:  # raised by Python if no thread can be started
            self._process.kill()
            self._process.wait()
            self._socket.close()
            raise OSError(errno.EAGAIN, str(error)) from error
        self._loop.add_reader(self._socket, self._readable)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended."""
        return self._gone.is_set()

    async def send(self, message: ToChild) -> None:
        """Send a message; it is lost if the child is dying, which `receive` then reports."""
        data, self._unsent = self._unsent + encode(message), b""
        if not self.is_gone:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._socket, data)

    def send_now(self, message: ToChild) -> None:
        """Send a small message to a child that has read all earlier ones; one that no longer reads does not get it."""
        if not self.is_gone:
            with contextlib.suppress(OSError):
                self._socket.send(encode(message))

    async def receive(self) -> Word:
        """Return the next message; the last is `Gone`."""
        return await self._words.get()

    def read(self) -> None:
        """Process what the child has sent so far, without waiting."""
        while not self.is_gone and self._read_some():
            pass

    def _readable(self) -> None:
        self._read_some()

    def _read_some(self) -> bool:
        try:
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # reset: it died with unread messages
            data = b""
        if not data:
            # It is exiting, which a kill does not change; or its handler has closed a descriptor that it does not own.
            self._loop.remove_reader(self._socket)
            self.kill()
            return False
        try:
            for message in self._frames.feed(data):
                self._take(message)
        except ValueError:  # not the protocol: the handler wrote to the socket
            self._loop.remove_reader(self._socket)
            self.kill()
            return False
        return True

    def _take(self, message: FromChild) -> None:
        match message:
            case Settlement(stage):
                if self.settlement is not None:
                    self.settlement(stage)
            case _:
                self._words.put_nowait(message)

    def kill(self) -> None:
        """Kill the process, if it is alive."""
        if not self.is_gone:
            self._process.kill()

    async def wait(self) -> None:
        """Wait until the process is gone and reaped."""
        await self._gone.wait()

    async def end(self, grace: float) -> None:
        """Ask an idle child to close what it has open and exit; kill it if it has not after `grace` seconds."""
        try:
            async with asyncio.timeout(grace):
                await self.send(NoMoreJobs())
                await self.wait()
        except TimeoutError:
            self.kill()
            await self.wait()

    def _wait(self) -> None:
        if sys.platform == "linux":
            with contextlib.suppress(ChildProcessError):  # already reaped elsewhere
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no receiver
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self.read()  # its last messages
        self._loop.remove_reader(self._socket)
        self._socket.close()
        code = self._process.wait()
        self._gone.set()
        self._words.put_nowait(Gone(code))
        self._on_gone(self)


def main_file() -> MainFile | None:
    """Return this process's `__main__`; None where it has no file: in a REPL, under `python -c`."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):  # noqa: PTH113 - as the interpreter spells it
        return None
    spec = getattr(main, "__spec__", None)
    return MainFile(os.fsencode(os.path.abspath(path)), "" if spec is None else spec.parent or "")  # noqa: PTH100


@contextlib.contextmanager
def _blocked(signals: frozenset[signal.Signals]) -> Generator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
