"""Three nodes share the work of three consumers; one is killed, the leader is stopped, and the work moves by itself.

With `--kafka` the events are in a throw-away Kafka broker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from consumers import app, clean, prepare, verify
from rich.console import Console
from rich.live import Live
from rich.table import Table

PROGRAM = [sys.executable, str(Path(__file__).with_name("consumers.py"))]
LIMIT = 120.0  # seconds
WITH_A_BROKER = [sys.executable, "-m", "holdfast.testing.kafka_server"]
COLOURS = {"anna": "cyan", "ben": "magenta", "cleo": "yellow"}
console = Console()


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*PROGRAM, *words])  # noqa: S603 - our own program


def picture() -> Table:
    """Draw who owns which partition, how far it is, and who leads."""
    leader = app.sync.leader()
    name = "none" if leader is None else f"{leader.leadership.node.node_id}, epoch {leader.leadership.epoch}"
    table = Table(title=f"leader: {name}", title_justify="left", box=None)
    for column in ("consumer", "partitions and their owners", "done", "lag"):
        table.add_column(column, justify="right" if column in {"done", "lag"} else "left")
    for view in app.consumers.sync.list():
        owners = " ".join(
            f"[{COLOURS.get(share.owner or '', 'dim')}]{(share.owner or '·')[:1]}[/]" for share in view.shares
        )
        table.add_row(view.name, owners, str(sum(share.position for share in view.shares)), str(view.lag))
    return table


def wait_until(look: Callable[[], object], live: Live, deadline: float) -> None:
    """Draw until something is true."""
    while not look():
        if time.monotonic() > deadline:
            sys.exit("this takes too long: something is wrong")
        live.update(picture())
        time.sleep(0.2)
    live.update(picture())


def owners() -> set[str]:
    return {share.owner for view in app.consumers.sync.list() for share in view.shares if share.owner is not None}


def is_settled(*names: str) -> Callable[[], bool]:
    return lambda: (
        owners() == set(names)
        and all(share.owner is not None for view in app.consumers.sync.list() for share in view.shares)
    )


def leader_id() -> str | None:
    leader = app.sync.leader()
    return None if leader is None else leader.leadership.node.node_id


def main() -> int:
    clean()
    prepare()
    deadline = time.monotonic() + LIMIT
    nodes = {name: start("node", name) for name in ("anna", "ben", "cleo")}
    producer = start("produce")
    try:
        with Live(console=console, refresh_per_second=5, transient=False) as live:
            wait_until(is_settled(*nodes), live, deadline)
            leader = leader_id() or "anna"
            victim = next(name for name in nodes if name != leader)
            console.print(f"$ kill -9 {victim}  # soon the others have its partitions")
            nodes.pop(victim).kill()
            wait_until(is_settled(*nodes), live, deadline)
            console.print(
                f"$ kill {leader}      # the leader, gracefully: it hands its partitions over, another one leads"
            )
            nodes.pop(leader).terminate()
            wait_until(is_settled(*nodes), live, deadline)
            wait_until(lambda: leader_id() in nodes, live, deadline)
            wait_until(lambda: producer.poll() is not None, live, deadline)
            wait_until(lambda: not sum(view.lag for view in app.consumers.sync.list()), live, deadline)
    finally:
        for process in (*nodes.values(), producer):
            process.terminate()
            process.wait()
    console.print()
    code = verify()
    app.sync.close()
    return code


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if sys.argv[1:] == ["--kafka"]:  # the same again, with $HOLDFAST_EVENTS_URL
        os.execv(sys.executable, [*WITH_A_BROKER, sys.executable, __file__])  # noqa: S606 - our own program
    sys.exit(main())
