"""A process with an open app that forks, and goes on in both halves at once.

`python -m tests.system.apps.fork_program <jobs of each half>`; each half prints the ids of the jobs that it enqueued.
"""

from __future__ import annotations

import os
import sys

from tests.system.apps.ledger_app import app, pay

from holdfast import StoreError


def enqueue(count: int, who: str) -> None:
    for _ in range(count):
        os.write(1, f"{who} {pay.sync.enqueue().id}\n".encode())  # in one piece: two processes write here


def main() -> int:
    count = int(sys.argv[1])
    enqueue(count, "before")
    inherited = connections()
    pid = os.fork()
    if pid == 0:
        enqueue(count, "child")
        assert not inherited & connections(), "the child uses its parent's connection"
        if is_sqlite():  # a session of a server knows its process by itself, and is not closed in another
            for connection in inherited:
                refuse(connection)
        return 0
    enqueue(count, "parent")
    assert inherited == connections(), "the parent has lost its connection"
    _, status = os.waitpid(pid, 0)
    enqueue(count, "after")
    assert inherited == connections(), "the child has closed its parent's connection"
    app.sync.close()
    return os.waitstatus_to_exitcode(status)


def connections() -> set[object]:
    """Return the connections that this process would use for the next call."""
    parts = app.backend._parts.here  # type: ignore[attr-defined]
    if is_sqlite():
        return {session.connection for session in (parts.writer, parts.reader)}
    pools = parts._pools[0] if hasattr(parts, "_pools") else parts.wire.pools
    return {connection for pool in pools._pools.values() for connection in pool._idle}


def is_sqlite() -> bool:
    return app.backend.url.startswith("sqlite:")


def refuse(connection: object) -> None:
    try:
        connection.begin()  # type: ignore[attr-defined]
    except StoreError as error:
        print("refused:", error, flush=True)  # noqa: T201 - the test reads it
        return
    message = "a connection of the parent could be used in the child"
    raise AssertionError(message)


if __name__ == "__main__":
    sys.exit(main())
