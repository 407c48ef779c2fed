"""The output of many children as one stream of whole lines, each labelled with its source.

```text
w1 ── pipe ──┐
w2 ── pipe ──┼── whole lines, "[w1] …" ── pending (bounded) ── sink (standard output)
helper pipe ─┘
```

Each readable pipe gets one short read per turn, so a flood from one child delays the others only a little. The output
that waits for the sink is bounded: when the sink does not keep up (a paused terminal, a slow pager), the pipes are left
unread, and the children block when they write; the caller never does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import time
from collections.abc import Iterator
from typing import Final

from holdfast.runtime.log_format import LOG_FORMAT, UtcFormatter

_logger = logging.getLogger("holdfast.worker")
_CHUNK: Final = 16 * 1024  # bytes per read: bounds the time that one child takes of a turn
_LINE: Final = 64 * 1024  # a longer line is cut
_FULL: Final = 256 * 1024  # pending bytes at which reading stops
_WRITE: Final = 4096  # a pipe that polls as writable has room for this much
_ERASE: Final = b"\r\x1b[K"
_LAST_READS: Final = 64  # 1 MiB, the largest pipe; bounds the last reads if another process still writes


_PLAIN: Final = UtcFormatter(LOG_FORMAT)


def _handlers() -> Iterator[logging.Handler]:
    """Yield the handlers that would log a record of the supervisor, the nearest first."""
    logger: logging.Logger | None = _logger
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


class Source:
    """One child's pipe, and the beginning of its unfinished line."""

    def __init__(self, fd: int, label: str) -> None:
        self.fd = fd
        self.prefix = f"[{label}] ".encode()
        self.partial = bytearray()
        self.is_open = True


class JoinedLogs:
    """Joins the lines of its sources and writes them to `sink`, driven by the caller's selector.

    The data of every key that it registers is a function without arguments, to be called when the key is ready.
    The selector must accept regular files as sinks: `selectors.PollSelector` does.
    """

    def __init__(self, selector: selectors.BaseSelector, *, sink: int = 1) -> None:
        self._selector = selector
        self._sink = sink
        self._sources: list[Source] = []
        self._pending = bytearray()
        self._line = b""  # stands under the logs
        self._is_writing = False
        self._is_paused = False
        self._lost = 0
        self._why_lost = OSError()

    @property
    def fds(self) -> list[int]:
        """The read ends of the pipes; a forked child closes them."""
        return [source.fd for source in self._sources]

    def add(self, fd: int, label: str) -> Source:
        """Take ownership of the read end `fd`; its lines are labelled `[label]`."""
        os.set_blocking(fd, False)
        source = Source(fd, label)
        self._sources.append(source)
        if not self._is_paused:
            self._listen(source)
        return source

    def say(self, text: str, level: int = logging.INFO) -> None:
        """Write a line of the supervisor, as the program has configured its log; otherwise with time and level."""
        self._emit_own(text, level)
        self._balance()

    def show(self, line: str) -> None:
        """Show a line under the logs, on a terminal, in place of the last one; skipped while the sink is busy."""
        if self._pending and line:
            return
        try:
            width = os.get_terminal_size(self._sink).columns
        except OSError:  # not a terminal
            return
        if line or self._line:
            self._line = line[: width - 1].encode()
            self._pending += _ERASE + self._line
            self._balance()

    def _emit_own(self, text: str, level: int) -> None:
        handler = next((handler for handler in _handlers() if handler.formatter is not None), None)
        if handler is not None and not (_logger.isEnabledFor(level) and level >= handler.level):
            return
        formatter = _PLAIN if handler is None or handler.formatter is None else handler.formatter
        record = _logger.makeRecord(_logger.name, level, __file__, 0, text, (), None)
        for line in formatter.format(record).splitlines():
            self._emit(b"[supervisor] ", line.encode(errors="backslashreplace"))

    def end(self, source: Source) -> None:
        """Read what a dead child has left in its pipe, including an unfinished line, and close the pipe.

        The pipe is closed even if a process that left the child's process group still holds the other end.
        """
        for _ in range(_LAST_READS):
            if not source.is_open or not self._read(source):
                break
        self._close(source)
        self._balance()

    def flush(self, *, within: float) -> None:
        """Write what is pending, for at most `within` seconds: a stuck sink does not delay the end."""
        deadline = time.monotonic() + within
        with selectors.PollSelector() as only_sink:
            only_sink.register(self._sink, selectors.EVENT_WRITE)
            while self._pending and (left := deadline - time.monotonic()) > 0:
                if only_sink.select(left):
                    self._write()

    def _listen(self, source: Source) -> None:
        self._selector.register(source.fd, selectors.EVENT_READ, lambda: self._on_readable(source))

    def _on_readable(self, source: Source) -> None:
        if source.is_open and not self._is_paused:  # an earlier key of the same turn may have closed or paused it
            self._read(source)
            self._balance()

    def _read(self, source: Source) -> bool:
        """Read once; return whether there may be more."""
        try:
            chunk = os.read(source.fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._close(source)
            return False
        source.partial += chunk
        *lines, rest = source.partial.split(b"\n")
        for line in lines:
            self._emit(source.prefix, line)
        while len(rest) > _LINE:
            self._emit(source.prefix, rest[:_LINE])
            rest = rest[_LINE:]
        source.partial = rest
        return True

    def _emit(self, prefix: bytes, line: bytes | bytearray) -> None:
        if self._line:
            self._pending += _ERASE
        if not line.startswith(prefix):
            self._pending += prefix
        self._pending += line
        self._pending += b"\n"
        self._pending += self._line

    def _close(self, source: Source) -> None:
        if not source.is_open:
            return
        if source.partial:
            self._emit(source.prefix, source.partial)
        with contextlib.suppress(KeyError):  # not registered while paused
            self._selector.unregister(source.fd)
        os.close(source.fd)
        source.is_open = False
        self._sources.remove(source)

    def _write(self) -> None:
        chunk = bytes(self._pending[:_WRITE])
        try:
            written = os.write(self._sink, chunk)
        except BlockingIOError:
            return
        except OSError as error:
            # The reader is gone or the disk is full. Running jobs matters more than logging: continue, and report the
            # loss when the sink works again.
            self._lost += len(self._pending)
            self._pending.clear()
            self._why_lost = error
        else:
            del self._pending[:written]
            if self._lost:
                lost, self._lost = self._lost, 0
                self._emit_own(f"{lost} bytes of output were lost: {self._why_lost}", logging.WARNING)

    def _on_writable(self) -> None:
        self._write()
        self._balance()

    def _balance(self) -> None:
        """Register the sink while output is pending, and the sources while not too much is."""
        if bool(self._pending) != self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self._selector.register(self._sink, selectors.EVENT_WRITE, self._on_writable)
            else:
                self._selector.unregister(self._sink)
        if self._is_paused and len(self._pending) < _FULL // 2:
            self._is_paused = False
            for source in self._sources:
                self._listen(source)
        elif not self._is_paused and len(self._pending) > _FULL:
            self._is_paused = True
            for source in self._sources:
                self._selector.unregister(source.fd)
