"""Waits for sockets in the event loop, by one system call each.

`add_reader` and `remove_reader` take some 20 µs of Python for each wait. Here a socket is registered once, with an
epoll that the event loop watches as a whole, and is armed for each wait (EPOLLONESHOT).

The owner of a socket may close it in another thread, and its number may then be that of another socket. The kernel
forgets a registration together with its socket, so `arm` registers such a number again. An event that nothing waits for
is ignored; an event of an earlier socket of the same number makes the waiting code look, and wait again.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

from holdfast.concurrency.per_loop import PerLoop

READ, WRITE = 1, 2
_MOST = 64  # events that are taken at once; the loop comes back for more
_EPOLL_EVENTS: tuple[int, ...] = (  # by what is wanted; there is no epoll on other systems than Linux
    tuple(
        flags | select.EPOLLONESHOT for flags in (0, select.EPOLLIN, select.EPOLLOUT, select.EPOLLIN | select.EPOLLOUT)
    )
    if hasattr(select, "epoll")
    else ()
)
Ready = Callable[[int], None]
"""Is called with the directions in which a socket is ready; a broken one is ready in those that were wanted."""


class SocketWatch:
    """The sockets of one event loop that are waited for."""

    def arm(self, descriptor: int, wanted: int, ready: Ready) -> None:
        """Call `ready` once, when the socket is ready for `wanted`: READ, WRITE or both. Raises `OSError`."""
        raise NotImplementedError

    def disarm(self, descriptor: int, ready: Ready) -> None:
        """Withdraw that."""
        raise NotImplementedError


class EpollWatch(SocketWatch):
    """Watch by a separate epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._epoll = select.epoll()
        self._armed: dict[int, tuple[Ready, int]] = {}
        loop.add_reader(self._epoll.fileno(), self._take)

    def arm(self, descriptor: int, wanted: int, ready: Ready) -> None:  # noqa: D102
        try:
            self._epoll.modify(descriptor, _EPOLL_EVENTS[wanted])
        except FileNotFoundError:
            self._epoll.register(descriptor, _EPOLL_EVENTS[wanted])
        self._armed[descriptor] = ready, wanted

    def disarm(self, descriptor: int, ready: Ready) -> None:  # noqa: D102
        armed = self._armed.get(descriptor)
        if armed is not None and armed[0] == ready:
            del self._armed[descriptor]

    def _take(self) -> None:
        for descriptor, events in self._epoll.poll(0, _MOST):
            armed = self._armed.pop(descriptor, None)
            if armed is not None:
                ready, wanted = armed
                found = (WRITE if events & select.EPOLLOUT else 0) | (READ if events & ~select.EPOLLOUT else 0)
                ready(found & wanted or wanted)


class LoopWatch(SocketWatch):
    """Over the readers and writers of the loop, where the system has no epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        del loop
        self._armed: dict[int, Ready] = {}

    def arm(self, descriptor: int, wanted: int, ready: Ready) -> None:  # noqa: D102
        loop = asyncio.get_running_loop()
        self._armed[descriptor] = ready
        for way, add in ((READ, loop.add_reader), (WRITE, loop.add_writer)):
            if wanted & way:
                add(descriptor, self._fire, descriptor, way)

    def disarm(self, descriptor: int, ready: Ready) -> None:  # noqa: D102
        if self._armed.get(descriptor) == ready:
            self._withdraw(descriptor)

    def _fire(self, descriptor: int, way: int) -> None:
        self._withdraw(descriptor)(way)

    def _withdraw(self, descriptor: int) -> Ready:
        loop = asyncio.get_running_loop()
        loop.remove_reader(descriptor)
        loop.remove_writer(descriptor)
        return self._armed.pop(descriptor)


socket_watches: PerLoop[SocketWatch] = PerLoop(EpollWatch if hasattr(select, "epoll") else LoopWatch)
