"""Which store a command is about: `--url`, `$HOLDFAST_URL`, the app's own, or the default, in this order."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from holdfast.app.app import App
from holdfast.app.open import DEFAULT_URL
from holdfast.cli.exit_errors import debug_option, is_debugging, warn
from holdfast.cli.loading import load_app
from holdfast.cli.text import has_password
from holdfast.errors import ConfigError, StoreUnavailable

T = TypeVar("T")


class Target:
    """The store of one command, and the app over it."""

    def __init__(self, url: str | None, app_name: str | None, app_dir: Path | None) -> None:
        self._url = url
        self._app_name = app_name
        self._app_dir = app_dir
        self._is_from_environment = _source_of_url() is ParameterSource.ENVIRONMENT

    def app(self) -> App:
        """Return the app given by `--app`, over the store that was asked for; without `--app` one without tasks."""
        if not is_debugging():
            _quieten()
        check_url(self._url)
        if self._app_name is None:
            return App(DEFAULT_URL if self._url is None else self._url)
        app = load_app(self._app_name, self._app_dir)
        if self._url is not None:
            own = app.backend.url
            app.use(self._url)
            if self._is_from_environment and app.backend.url != own:
                warn(f"$HOLDFAST_URL leads to {app.backend.url}; the app's own URL, {own}, is not used")
        return app

    def app_with_work(self, purpose: str) -> App:
        """Return the app given by `--app`, which must have tasks or consumers."""
        if self._app_name is None:
            raise ConfigError(f"--app is missing: {purpose}, as in --app shop.tasks:app")
        app = self.app()
        if not len(app.tasks) and not len(app.subscribed):
            message = (
                f"{self._app_name} has no tasks and no consumers: decorate functions with @app.task or @app.consumer "
                "in that module, or import the modules that do so there"
            )
            raise ConfigError(message)
        return app

    def app_with_tasks(self, purpose: str) -> App:
        """Return the app given by `--app`, which must have tasks."""
        if self._app_name is None:
            raise ConfigError(f"--app is missing: {purpose}, as in --app shop.tasks:app")
        app = self.app()
        if not len(app.tasks):
            message = (
                f"{self._app_name} has no tasks: decorate functions with @app.task in that module, "
                "or import the modules that do so there"
            )
            raise ConfigError(message)
        return app

    def run(self, work: Callable[[App], Awaitable[T]], *, app: App | None = None, creates: bool = False) -> T:
        """Run a coroutine over the app, then close it. Only with `creates` an embedded store may come into being."""
        chosen = app or self.app()

        async def whole() -> T:
            try:
                if not creates:
                    await require_store(chosen)
                return await work(chosen)
            finally:
                await chosen.close()

        return asyncio.run(whole())


async def require_store(app: App) -> None:
    """Raise if an embedded store does not exist or has no tables: a command that only reads must not create them."""
    require_file(app)
    if app.backend.file is not None:
        await app.backend.schema.check()


def require_file(app: App) -> None:
    """Raise `StoreUnavailable` if the file of an embedded store is missing, `ConfigError` for a store in memory."""
    path = file_of(app)
    if path is not None and not path.exists():
        message = (
            f"there is no database at {path}\n"
            "Name the right one with --url or $HOLDFAST_URL; `holdfast schema install` creates a new one."
        )
        raise StoreUnavailable(message)


def file_of(app: App) -> Path | None:
    """Return the file of an embedded store, None for a server; raises `ConfigError` for a store in memory."""
    if app.backend.full_url is None:
        message = f"{app.backend.url} is in memory, which no other process can see: name a file, as in {DEFAULT_URL}"
        raise ConfigError(message)
    return app.backend.file


def check_url(url: str | None) -> None:
    """Refuse a URL that cannot be one, and warn of a password that others can read."""
    if url is None:
        return
    if not url:
        message = f"the URL is empty: it must look like {DEFAULT_URL}"
        raise ConfigError(message)
    try:
        urlsplit(url)
    except ValueError:  # what Python says of it may hold a password
        message = f"the URL cannot be read: it must look like {DEFAULT_URL}"
        raise ConfigError(message) from None
    if _source_of_url() is ParameterSource.COMMANDLINE and has_password(url):
        warn(
            "the URL on the command line holds a password, which everybody on this machine can read in the list "
            "of processes: put it into $HOLDFAST_URL"
        )


def _source_of_url() -> ParameterSource | None:
    return click.get_current_context().get_parameter_source("url")


def _quieten() -> None:
    """Keep what the store logs out of short commands; `doctor` tells it, and a worker logs it."""
    logger = logging.getLogger("holdfast")
    if not logging.getLogger().handlers:
        logger.setLevel(logging.ERROR)


def store_options(function: Callable[..., T]) -> Callable[..., T]:
    """Give a command the options that name its store; the function takes a `Target` first."""

    @click.option("--url", envvar="HOLDFAST_URL", help="The store, as a URL; or $HOLDFAST_URL.")
    @click.option("--app", "app_name", metavar="MODULE:ATTR", help="The app; its store is used if no URL is given.")
    @click.option(
        "--app-dir",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Look for the app's module here first. Without this only installed modules are found.",
    )
    @debug_option
    @functools.wraps(function)
    def command(*args: Any, url: str | None, app_name: str | None, app_dir: Path | None, **options: Any) -> T:
        return function(Target(url, app_name, app_dir), *args, **options)

    return command
