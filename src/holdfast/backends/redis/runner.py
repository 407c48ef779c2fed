"""Runners: execute verbs over the connections of the process, or over one of a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from holdfast.backends.redis.directory import Directory
from holdfast.backends.redis.steps import BIND, Pause, ScriptCall, on_one_store
from holdfast.backends.redis.wire import AsyncWire, BlockingWire
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.store.steps import PlainRunner, Ready, Steps, Verb

T = TypeVar("T")


class _VerbProgress:
    """Whether a verb has written: then a fault of a later step does not mean that nothing was written."""

    has_written = False
    store = b""
    """The id of the store that its calls are for."""

    def after(self, call: ScriptCall) -> None:
        self.has_written = self.has_written or call.writes

    def fault(self, error: HoldfastError) -> HoldfastError:
        if self.has_written and isinstance(error, StoreUnavailable):
            return OutcomeUnknown(str(error))
        return error


class RedisRunner(PlainRunner):
    """Runs each verb as a few scripts; `became_ready` notifies the listeners of this process."""

    def __init__(self, wire: AsyncWire, directory: Directory, became_ready: Callable[[], None]) -> None:
        self._wire = wire
        self._directory = directory
        self._became_ready = became_ready

    async def write(self, verb: Verb[T]) -> T:
        """Run a verb from its beginning until what it has read still holds when it writes."""
        ready = Ready()
        answer = await self._drive(on_one_store(verb, ready, self._directory.known))
        if ready:
            self._became_ready()
        return answer

    async def _drive(self, steps: Steps[T]) -> T:
        progress = _VerbProgress()
        try:
            asked = next(steps)
            while True:
                try:
                    reply = await self._answer(asked, progress)
                except Exception as error:  # noqa: BLE001 - the verb starts again, or lets it pass
                    asked = steps.throw(error)
                else:
                    asked = steps.send(reply)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            steps.close()

    async def _answer(self, asked: Any, progress: _VerbProgress) -> Any:
        if asked is BIND:
            progress.store = self._directory.store
            return None
        if isinstance(asked, Pause):
            await asyncio.sleep(asked.seconds)
            return None
        try:
            reply = await self._wire.call(asked, progress.store)
        except HoldfastError as error:
            raise progress.fault(error) from error.__cause__
        progress.after(asked)
        return reply


def run_blocking(wire: BlockingWire, directory: Directory, verb: Verb[T], timeout: float) -> T:
    """Run a verb in this thread."""
    steps = on_one_store(verb, Ready(), directory.known)
    progress = _VerbProgress()
    try:
        asked = next(steps)
        while True:
            reply = None
            try:
                if asked is BIND:
                    progress.store = directory.store
                elif isinstance(asked, Pause):
                    time.sleep(asked.seconds)
                else:
                    reply = wire.call(asked, progress.store, timeout)
                    progress.after(asked)
            except HoldfastError as error:
                asked = steps.throw(progress.fault(error))
            except Exception as error:  # noqa: BLE001 - as above
                asked = steps.throw(error)
            else:
                asked = steps.send(reply)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()
