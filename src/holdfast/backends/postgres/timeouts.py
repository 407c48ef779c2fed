"""Reply timeouts: after that the socket is shut down, as if the network had broken.

Keepalives detect a dead link, but neither a proxy that holds packets back nor a server that hangs: every packet is
acknowledged and no reply ever comes. Cancelling the wait would not help: the driver then asks the server to cancel,
over the same network, and waits for that. So the socket is shut down. The waiting call fails at once and takes the path
of every broken connection.
"""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from holdfast.concurrency.timeouts import limited, limited_blocking


def hang_up(connection: AsyncConnection[Any] | Connection[Any]) -> None:
    """Shut the socket down; safe from any thread, while another waits for a reply on it."""
    try:
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error):
        return  # already closed


def bounded(connection: AsyncConnection[Any], seconds: float | None) -> AbstractContextManager[None]:
    """Shut the socket down if the block takes longer; for the running event loop."""
    return limited(seconds, partial(hang_up, connection))


def bounded_blocking(connection: Connection[Any], seconds: float | None) -> AbstractContextManager[None]:
    """Shut the socket down if the block takes longer; for threads."""
    return limited_blocking(seconds, partial(hang_up, connection))


def await_answers(connection: Connection[Any], seconds: float) -> None:
    """Wait at most `seconds` for the replies to commands that were sent; for threads that do so often.

    The wait itself is bounded, so no timer watches it: starting a thread and joining it took longer than the command.
    Raises `psycopg.Error`; the connection is then to be dropped.
    """
    session = connection.pgconn
    give_up = time.monotonic() + seconds
    poll = select.poll()
    while (is_unsent := bool(session.flush())) or not take_answers(session):
        poll.register(session.socket, select.POLLIN | (select.POLLOUT if is_unsent else 0))
        if not poll.poll(max(0, int((give_up - time.monotonic()) * 1000))):
            message = "the server does not answer"
            raise psycopg.OperationalError(message)
        session.consume_input()


def take_answers(session: PGconn) -> bool:
    """Read the replies that have arrived; return whether all have. Raises the server's error for a failed command."""
    while not session.is_busy():
        result = session.get_result()
        if result is None:
            return True
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
    return False
