"""Runs verbs, over the connections of the process or over one of a thread.

A verb whose guards do not hold starts again; so does one whose store was installed again while it ran.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.backends.redis.lane_directory import LaneDirectory
from holdfast.backends.redis.staging import commit_batch, unlock, wait_for_batch
from holdfast.backends.redis.steps import AnotherStore, Pause, Pending, Restart, ScriptCall, answered
from holdfast.backends.redis.wire import AsyncWire, BlockingWire
from holdfast.errors import ConfigError, JobNotFound, OutcomeUnknown, StoreUnavailable, UniqueConflict
from holdfast.store.steps import BecameReady, PlainRunner, Ready, Steps, Verb

T = TypeVar("T")
_STARTS = 50  # of a verb whose guards do not hold
_INSTALLATIONS = 3  # of a store while a verb runs
_PAUSE = 0.002  # seconds before a verb starts again, up to ten times as long after many
_Requests = Generator[tuple[ScriptCall | Pause, bytes], Any, T]


class RedisRunner(PlainRunner):
    """Runs each verb as a few scripts; `became_ready` notifies the listeners of this process."""

    def __init__(self, wire: AsyncWire, directory: LaneDirectory, became_ready: Callable[[], None]) -> None:
        self._wire = wire
        self._directory = directory
        self._became_ready = became_ready

    async def write(self, verb: Verb[T]) -> T:
        """Run a verb from its beginning until what it has read still holds when it writes."""
        ready = Ready()
        requests = _on_one_store(verb, ready, self._directory)
        try:
            asked, store = next(requests)
            while True:
                reply = None
                try:
                    if isinstance(asked, Pause):
                        await asyncio.sleep(asked.seconds)
                    else:
                        reply = await self._wire.call(asked, store)
                except Exception as error:  # noqa: BLE001 - the verb starts again, or lets it pass
                    asked, store = requests.throw(error)
                else:
                    asked, store = requests.send(reply)
        except StopIteration as stop:
            if ready:
                self._became_ready()
            return stop.value  # type: ignore[no-any-return]
        finally:
            requests.close()


def run_blocking(wire: BlockingWire, directory: LaneDirectory, verb: Verb[T], timeout: float) -> T:
    """Run a verb in this thread."""
    requests = _on_one_store(verb, Ready(), directory)
    try:
        asked, store = next(requests)
        while True:
            reply = None
            try:
                if isinstance(asked, Pause):
                    time.sleep(asked.seconds)
                else:
                    reply = wire.call(asked, store, timeout)
            except Exception as error:  # noqa: BLE001 - as above
                asked, store = requests.throw(error)
            else:
                asked, store = requests.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        requests.close()


def _on_one_store(verb: Verb[T], ready: Ready, directory: LaneDirectory) -> _Requests[T]:
    """Yield the calls of a verb, each with the id of its store: numbers of lanes mean nothing in another one."""
    for _ in range(_INSTALLATIONS):
        seen = yield from _for_store(directory.known(), b"")
        try:
            return (yield from _for_store(_until_guards_hold(verb, ready), seen.store))
        except AnotherStore:
            continue
    raise StoreUnavailable("the store was reinstalled repeatedly; retry later")


def _for_store(steps: Steps[T], store: bytes) -> _Requests[T]:
    """Name the store; after a write, a fault of a later call does not mean that nothing was written."""
    has_written = False
    try:
        asked = next(steps)
        while True:
            try:
                reply = yield asked, store
            except StoreUnavailable as error:
                fault = OutcomeUnknown(str(error)) if has_written else error
                fault.__cause__ = error.__cause__
                asked = steps.throw(fault)
            except Exception as error:  # noqa: BLE001 - as above
                asked = steps.throw(error)
            else:
                has_written = has_written or (isinstance(asked, ScriptCall) and asked.writes)
                asked = steps.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def _until_guards_hold(verb: Verb[T], ready: Ready) -> Steps[T]:
    """Run a verb with what it collects, from its beginning, until its guards hold."""
    afterwards: list[Verb[None]] = []
    for start in range(_STARTS):
        if start:
            yield Pause(random.uniform(0, _PAUSE * min(start, 10)))  # noqa: S311 - not a secret
            yield from wait_for_batch()
        found = Pending(afterwards)
        seen: list[BecameReady] = []
        try:
            answer = yield from answered(verb(), found, seen)
            if not found:
                yield from unlock(found)
            else:
                yield from found.commit() if found.batch is None else commit_batch(found)
        except Restart:
            yield from unlock(found)
            continue
        except (ConfigError, JobNotFound, UniqueConflict):
            yield from unlock(found)
            raise
        with suppress(StoreUnavailable, OutcomeUnknown):
            for following in afterwards:
                yield from answered(following(), Pending(), seen)
        for reported in seen:
            ready.add(reported)
        return answer
    raise StoreUnavailable("too many concurrent changes; retry")
