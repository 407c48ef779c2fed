"""What a run reads of a store on Redis, by the names of the statements that read it from a SQL store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from holdfast.torture.names import QUEUES
from holdfast.torture.target.redis_keys import SETS, RedisKeys, Row, order_key_of, seq_of

_SHOWN = 20


class RedisQuery:
    """`Query` over the keys of a store, and over the lists of effects and steps next to it."""

    def __init__(self, client: Any, prefix: bytes) -> None:
        """`client` is one of redis-py, with `prefix` before all keys of the store."""
        self._keys = RedisKeys(client, prefix)

    def all(self, name: str, **names: str | int) -> list[Row]:  # noqa: PLR0911 - a table of names
        """Return all rows."""
        if name == "all_jobs":
            return sorted(self._keys.jobs(), key=lambda row: row[4])
        if name == "all_attempts":
            return sorted(self._keys.attempts(), key=lambda row: row[:2])
        if name == "all_effects":
            return [(job, fence, attempt, *more) for job, attempt, fence, *more in self._keys.written("effect")]
        if name == "doubled_steps":
            steps = Counter((job, fence) for job, _, fence, *_ in self._keys.written("step"))
            return [step for step, count in steps.items() if count > 1][:_SHOWN]
        if name == "missing_steps":
            under = {(job, fence) for job, _, fence, *_ in self._keys.written("step")}
            stepped = {job for job, _ in under}
            effects = ((job, fence) for job, _, fence, *_ in self._keys.written("effect") if job in stepped)
            return [(job,) for job, fence in effects if (job, fence) not in under][:_SHOWN]
        if name == "wrong_order":
            return self._wrong_order()[:_SHOWN]
        return [(self._count(name, str(names.get("state"))),)]

    def _wrong_order(self) -> list[Row]:
        """Return the jobs whose effect came after that of a later job of the same order key."""
        effects = self._keys.written("effect")
        records = dict(self._keys.records([UUID(job).bytes for job, *_ in effects]))
        last: dict[bytes, int] = {}
        wrong: list[Row] = []
        for job, *_ in effects:
            record = records[UUID(job).bytes]
            key = None if record is None else order_key_of(record)
            if record is not None and key is not None:
                seq = seq_of(record)
                if last.get(key, 0) > seq:
                    wrong.append((job,))
                last[key] = seq
        return wrong

    def _count(self, name: str, state: str) -> int:
        if name == "has_marker":
            return self._keys.is_marked()
        if name == "count_state":
            return self._keys.sizes[state]
        if name == "count_foreign":
            theirs = {number for number, (queue, _) in enumerate(self._keys.lanes) if queue not in QUEUES}
            return sum(lane in theirs for state in SETS for lane, _ in self._keys.members(state))
        return 0  # of what such a store cannot have; doubled effects are counted at the end, and not during the run

    def each(self, name: str) -> Iterator[Row]:
        """Go over rows."""
        return iter(self.all(name))

    def misplaced(self) -> list[str]:
        """Return the jobs that are in no set, in several, or in another than that of their state."""
        found: defaultdict[bytes, list[str]] = defaultdict(list)
        for state in SETS:
            for _, member in self._keys.members(state):
                found[member[8:]].append(state)
        wrong: list[str] = []
        for id16, state in self._keys.recorded():
            places = found.pop(id16, [])
            if places != [state]:
                wrong.append(f"job {UUID(bytes=id16)} is {state}, and in the sets of {places}")
        return wrong + [f"job {UUID(bytes=id16)} in {places} has no record" for id16, places in found.items()]
