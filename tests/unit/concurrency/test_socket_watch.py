"""Sockets are waited for once at a time, and a number that is used again is that of the new socket."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from holdfast.concurrency.socket_watch import READ, WRITE, EpollWatch, LoopWatch, SocketWatch


@pytest.fixture(params=[EpollWatch, LoopWatch])
async def watch(request: pytest.FixtureRequest) -> SocketWatch:
    made: SocketWatch = request.param(asyncio.get_running_loop())
    return made


class Found(list[int]):
    """What a watch has reported."""

    def __init__(self) -> None:
        super().__init__()
        self.any = asyncio.Event()

    def note(self, ways: int) -> None:
        self.append(ways)
        self.any.set()


async def _passes(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_socket_is_reported_once_for_each_time_it_was_armed(watch: SocketWatch):
    near, far = socket.socketpair()
    with near, far:
        found = Found()
        for round_ in (1, 2):
            watch.arm(near.fileno(), READ, found.note)
            await _passes()
            far.send(b"x")
            await asyncio.wait_for(found.any.wait(), 5)
            assert found == [READ] * round_
            far.send(b"y")
            await _passes()
            assert found == [READ] * round_  # it is not armed any more
            near.recv(10)
            found.any.clear()


async def test_a_socket_that_can_be_written_to_is_ready_for_that_only(watch: SocketWatch):
    near, far = socket.socketpair()
    with near, far:
        found = Found()
        watch.arm(near.fileno(), READ | WRITE, found.note)
        await asyncio.wait_for(found.any.wait(), 5)
        assert found == [WRITE]


async def test_the_end_of_the_other_side_is_reported(watch: SocketWatch):
    near, far = socket.socketpair()
    with near:
        found = Found()
        watch.arm(near.fileno(), READ, found.note)
        far.close()
        await asyncio.wait_for(found.any.wait(), 5)
        assert found == [READ]


async def test_a_socket_that_is_withdrawn_is_not_reported(watch: SocketWatch):
    near, far = socket.socketpair()
    with near, far:
        found = Found()
        watch.arm(near.fileno(), READ, found.note)
        watch.disarm(near.fileno(), found.note)
        far.send(b"x")
        await _passes()
        assert found == []
        watch.arm(near.fileno(), READ, found.note)  # the byte is still there
        await asyncio.wait_for(found.any.wait(), 5)
        assert found == [READ]


async def test_a_number_that_is_used_again_is_that_of_the_new_socket():
    watch = EpollWatch(asyncio.get_running_loop())
    old, other = socket.socketpair()
    near, far = socket.socketpair()
    number, found, stale = old.detach(), Found(), Found()
    with other, near, far:
        watch.arm(number, READ, stale.note)
        os.dup2(near.fileno(), number)  # closes the old one while it is waited for
        with socket.socket(fileno=number) as same:
            watch.arm(same.fileno(), READ, found.note)
            far.send(b"x")
            await asyncio.wait_for(found.any.wait(), 5)
    assert (found, stale) == ([READ], [])


async def test_a_closed_socket_cannot_be_armed(watch: SocketWatch):
    near, far = socket.socketpair()
    number = near.fileno()
    near.close()
    far.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        watch.arm(number, READ, Found().note)
