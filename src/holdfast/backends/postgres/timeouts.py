"""A bound on how long a reply may take: past it the line is hung up, as if the network had broken.

Keepalives see a link that is dead, but not one that is held up by somebody in between, nor a server that stands still:
there every packet is acknowledged and no reply ever comes. Cancelling the wait would not help: the driver then asks the
server to cancel, over the same network, and waits for that. So the socket is shut down. Whoever waits on it hears at
once that the connection has broken, and goes the way of every broken connection.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn


def hang_up(connection: AsyncConnection[Any] | Connection[Any]) -> None:
    """Break the line; safe from any thread, while another waits for a reply on it."""
    try:
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error):
        return  # it is closed already


@contextmanager
def bounded(connection: AsyncConnection[Any], seconds: float | None) -> Generator[None]:
    """Hang up if the block takes longer; for the running event loop."""
    if seconds is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(seconds, hang_up, connection)
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def bounded_blocking(connection: Connection[Any], seconds: float | None) -> Generator[None]:
    """Hang up if the block takes longer; for threads."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, hang_up, (connection,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # from here on it cannot meet a connection that was closed, and its number given to another


def await_answers(connection: Connection[Any], seconds: float) -> None:
    """Wait at most so long for the answers to commands that were sent; for threads that do so often.

    The wait itself is bounded, so no timer watches it: starting a thread and joining it took longer than the command.
    Raises `psycopg.Error`; the connection is then to be dropped.
    """
    session = connection.pgconn
    give_up = time.monotonic() + seconds
    while session.flush():
        _wait(session.socket, select.POLLIN | select.POLLOUT, give_up)
        session.consume_input()
    while not take_answers(session):
        _wait(session.socket, select.POLLIN, give_up)
        session.consume_input()


def take_answers(session: PGconn) -> bool:
    """Take what has been answered; whether that is all. Raises what the server says of a command that failed."""
    while not session.is_busy():
        result = session.get_result()
        if result is None:
            return True
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
    return False


def _wait(descriptor: int, events: int, give_up: float) -> None:
    poll = select.poll()
    poll.register(descriptor, events)
    if not poll.poll(max(0, int((give_up - time.monotonic()) * 1000))):
        message = "the server does not answer"
        raise psycopg.OperationalError(message)
