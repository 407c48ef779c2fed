"""How a job child finds a handler: by module and qualified name, as the worker imported it.

A main file without `if __name__ == "__main__":` starts its program again when a child imports it: a copy that enqueues,
claims and serves beside the first. So the store cannot be used while a child imports, in any thread; the first attempt
is reported to the worker at once, which kills the child. A main file whose import leaves threads running is refused,
too.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import reduce
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import FrameType, ModuleType
from typing import Final, Protocol, cast

import msgspec

from holdfast.concurrency.per_process import refusing
from holdfast.errors import ConfigError
from holdfast.hooks.observers import Hooks
from holdfast.jobs.task import Task
from holdfast.store.backend import Backend
from holdfast.streams.consumer import Consumer
from holdfast.worker.job_child.protocol import Hello, MainFile, RunEvents, RunJob

_logger = logging.getLogger("holdfast.worker")
_MAIN_NAME: Final = "__holdfast_main__"
"""The name of the worker's `__main__` in a child, so that code under `if __name__ == "__main__"` does not run."""


REMEDY: Final = (
    'put the program under `if __name__ == "__main__":`, or move the tasks to a separate module; a module with tasks '
    "must start nothing when it is imported"
)


class HasStore(Protocol):
    """The part of an app that a child needs: its store and its middleware."""

    @property
    def hooks(self) -> Hooks:
        """The hooks, of which a child uses only the middleware."""
        ...

    @property
    def backend(self) -> Backend:
        """The store, opened by this process."""
        ...

    def use(self, url: str, /) -> None:
        """Use the store behind another URL; raises `ConfigError` if one is already open."""
        ...


class Handle(Protocol):
    """The object in a module under the name of a handler: the result of `@app.task`."""

    @property
    def task(self) -> Task:
        """The task with its handler."""
        ...

    @property
    def app(self) -> HasStore:
        """The app in which the task is registered."""
        ...


class RegisteredConsumer(msgspec.Struct, frozen=True):
    """A consumer, and the app in which it is registered."""

    consumer: Consumer
    app: HasStore


_CONSUMERS: Final = "__holdfast_consumers__"


def remember(handler: object, registered: RegisteredConsumer) -> None:
    """Record with a handler which consumers it serves, so that a child process finds them."""
    known: dict[str, RegisteredConsumer] = getattr(handler, _CONSUMERS, {})
    setattr(handler, _CONSUMERS, {**known, registered.consumer.name: registered})


class Finder:
    """Imports handlers, each once."""

    def __init__(self, hello: Hello, report: Callable[[str], None]) -> None:
        """Import nothing yet. `report` is called, in any thread, if an import starts the program again."""
        self._report = report
        sys.path[:] = [os.fsdecode(place) for place in hello.path]
        self._main_file = hello.main
        self._main: ModuleType | None = None
        self._store = None if hello.store is None else os.fsdecode(hello.store)
        self._known: dict[tuple[str, str], Handle] = {}
        self._consumers: dict[tuple[str, str, str], RegisteredConsumer] = {}

    def find(self, run: RunJob) -> Handle:
        """Return the handle of a job's task; raises `ConfigError`, with the remedy."""
        key = (run.module, run.qualname)
        handle = self._known.get(key)
        if handle is None:
            handle = _checked(self._import(run.module, run.qualname, f"task {run.task!r}"), run)
            self._lead(handle.app)
            self._known[key] = handle
        return handle

    def find_consumer(self, run: RunEvents) -> RegisteredConsumer:
        """Return the consumer of events; raises `ConfigError`, with the remedy."""
        key = (run.module, run.qualname, run.consumer)
        registered = self._consumers.get(key)
        if registered is None:
            found = self._import(run.module, run.qualname, f"consumer {run.consumer!r}")
            registered = getattr(found, _CONSUMERS, {}).get(run.consumer)
            if registered is None:
                message = (
                    f"cannot run consumer {run.consumer!r} in a child process: {run.qualname!r} in module "
                    f"{run.module!r} is not its handler. Keep the result of @app.consumer under its name"
                )
                raise ConfigError(message)
            self._lead(registered.app)
            self._consumers[key] = registered
        return registered

    def _lead(self, app: HasStore) -> None:
        """Make an app use the worker's store, unless it already does: the store that it opens may be wrapped."""
        if self._store is not None and app.backend.full_url != self._store:
            app.use(self._store)

    def _import(self, name: str, qualname: str, owner: str) -> object:
        where = f"module {name!r} of {owner}"
        guard = _ImportGuard(where, self._report)
        try:
            with refusing(guard.refuse):
                module = self._load_main() if name == "__main__" else importlib.import_module(name)
        except BaseException as error:  # a module may raise anything, SystemExit too
            guard.check()
            _logger.exception("%s cannot be imported in a child process", where)
            message = (
                f"{where} cannot be imported in a child process: {type(error).__name__}: {error}. It must be "
                f"importable from the same sys.path as in the worker; {REMEDY}"
            )
            raise ConfigError(message) from error
        guard.check()
        if name == "__main__":
            _refuse_threads_of(module, where)
        try:
            return cast("object", reduce(getattr, qualname.split("."), module))
        except AttributeError:
            message = (
                f"{where} has no {qualname!r} when it is imported in a child process: keep the result of @app.task "
                "or @app.consumer under the name of the function, at the top of the module"
            )
            raise ConfigError(message) from None

    def _load_main(self) -> ModuleType:
        if self._main is None:
            if self._main_file is None:
                message = "the worker's __main__ has no file"  # checked by the worker before
                raise ConfigError(message)
            self._main = _load(self._main_file)
        return self._main


class _ImportGuard:
    """Refuses the use of the store by an import, and reports the first one."""

    def __init__(self, where: str, report: Callable[[str], None]) -> None:
        self._message = f"{where} uses the store when a child process imports it, as if the program started again"
        self._message += f": {REMEDY}"
        self._report = report
        self._is_used = False

    def refuse(self) -> ConfigError:
        """Return the error for a call of the store; called in any thread."""
        if not self._is_used:
            self._is_used = True
            _logger.error("%s", self._message)
            self._report(self._message)
        return ConfigError(self._message)

    def check(self) -> None:
        """Raise the error if the store was used, although the module may have suppressed it."""
        if self._is_used:
            raise ConfigError(self._message)


def _refuse_threads_of(main: ModuleType, where: str) -> None:
    """Raise `ConfigError` if the import of the main file has left threads that run its code: they are a program."""
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - documented
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and _runs(thread, frames.get(thread.ident or 0), main):
            message = f"{where} starts the thread {thread.name!r} when a child process imports it: {REMEDY}"
            _logger.error("%s", message)
            raise ConfigError(message)


def _runs(thread: threading.Thread, frame: FrameType | None, main: ModuleType) -> bool:
    target = getattr(thread, "_target", None)  # it may not have been entered yet
    if main.__name__ in {type(thread).__module__, getattr(target, "__module__", None)}:
        return True
    while frame is not None:
        if frame.f_globals is vars(main):
            return True
        frame = frame.f_back
    return False


def _load(main: MainFile) -> ModuleType:
    path = os.fsdecode(main.path)
    name = _MAIN_NAME
    if main.package:
        importlib.import_module(main.package)  # the base of relative imports
        name = f"{main.package}.{_MAIN_NAME}"
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, path))  # a script need not end in .py
    if spec is None or spec.loader is None:
        message = f"{path} cannot be loaded"
        raise ImportError(message)
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _checked(found: object, run: RunJob) -> Handle:
    task = getattr(found, "task", None)
    if isinstance(task, Task) and task.name == run.task and hasattr(found, "app"):
        return cast("Handle", found)
    is_what = f"the task {task.name!r}" if isinstance(task, Task) else f"a {type(found).__name__}, not a task"
    message = (
        f"cannot run task {run.task!r} in a child process: {run.qualname!r} in module {run.module!r} is {is_what}. "
        "Keep the result of @app.task under the name of the function, and give each task a name that does not change"
    )
    raise ConfigError(message)
