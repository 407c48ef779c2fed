"""The scenarios by name. Each is given a `Bench` and returns its records."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.record import Record
from benchmarks.scenarios import depth, drain, effects, enqueue, held, http, kafka, latency, memory, streams, waiting

Scenario = Callable[[Bench], list[Record]]

SCENARIOS: dict[str, Scenario] = {
    "enqueue.bulk": enqueue.bulk,
    "enqueue.one": enqueue.one,
    "enqueue.sync_one": enqueue.sync_one,
    "enqueue.hundred": enqueue.hundred,
    "enqueue.unique": enqueue.unique,
    "enqueue.unique_one": enqueue.unique_one,
    "drain.one": drain.one,
    "drain.two": drain.two,
    "drain.four": drain.four,
    "drain.order_keys": drain.order_keys,
    "drain.beside_limit": drain.beside_limit,
    "drain.held": held.held,
    "drain.held.long": held.long,
    "http.enqueue": http.enqueue,
    "latency": latency.latency,
    "claim.depth": depth.depth,
    "memory.drain": memory.drain,
    "memory.waiting": waiting.waiting,
    "effects.batch100": effects.batch100,
    "effects.single10": effects.single10,
    "effects.single32": effects.single32,
    "append.batch": streams.append,
    "consume.batch": streams.consume,
    "streams.depth": streams.depth,
    "kafka.produce": kafka.produce,
    "kafka.consume.100": kafka.consume_100,
    "kafka.consume.500": kafka.consume_500,
}


LONG = frozenset({"drain.held.long", "streams.depth"})
"""Left out unless they are named in full."""

LACKS = {"redis": ("drain.held", "effects.", "append.", "consume.", "streams.", "kafka.")}
"""By store: the prefixes of the names of what it lacks: snapshots, transactions, streams."""


def chosen(only: tuple[str, ...]) -> dict[str, Scenario]:
    """Return the scenarios whose names begin with one of those given; all but the long ones if none is."""
    return {
        name: run
        for name, run in SCENARIOS.items()
        if name in only or (name not in LONG and (not only or name.startswith(only)))
    }
