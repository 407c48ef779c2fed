"""The store of a command: `--url`, `$HOLDFAST_URL`, the app's URL or the default, in this order.

The app is an argument of the command, `--app` or `$HOLDFAST_APP`, in this order.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from holdfast.cli.exit_errors import debug_option, is_debugging, warn
from holdfast.cli.suggested_commands import remember_options
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.reports.text import has_password
from holdfast.store.url_settings import DEFAULT_URL

if TYPE_CHECKING:
    from holdfast.app.app import App

T = TypeVar("T")
_ARGUMENT = "holdfast.app_argument"


class StoreTarget:
    """The store of one command, and its app."""

    def __init__(self, url: str | None, app_name: str | None, app_dir: Path | None) -> None:
        self._url = url
        self._app_name, self._is_app_given = _chosen_app(app_name)
        self._app_dir = app_dir
        self._is_from_environment = _source_of("url") is ParameterSource.ENVIRONMENT
        remember_options(self._options())

    def _options(self) -> list[str]:
        """Return the options that lead another command to the same store and app, without a password."""
        words: list[str] = []
        if self._url and not self._is_from_environment and not has_password(self._url):
            words += ["--url", self._url]
        if self._app_name is not None and self._is_app_given:
            words += ["--app", self._app_name]
        if self._app_dir is not None:
            words += ["--app-dir", str(self._app_dir)]
        return words

    def app(self) -> App:
        """Return the named app with the chosen store; without one, an app without tasks.

        If only `$HOLDFAST_APP` names it and the URL is known, it is not imported: nothing of it is needed.
        """
        return self._opened(is_needed=False)

    def _opened(self, *, is_needed: bool) -> App:
        if not is_debugging():
            _quieten()
        check_url(self._url)
        # Only here: the help of a command needs neither, and importing them takes time.
        from holdfast.app.app import App
        from holdfast.cli.loading import load_app

        if self._app_name is None or not (is_needed or self._is_app_given or self._url is None):
            return App(DEFAULT_URL if self._url is None else self._url)
        app = load_app(self._app_name, self._app_dir)
        if self._url is not None:
            own = app.backend.url
            app.use(self._url)
            if self._is_from_environment and app.backend.url != own:
                warn(f"$HOLDFAST_URL ({app.backend.url}) overrides the app's own URL ({own})")
        return app

    def app_with_work(self, purpose: str) -> App:
        """Return the named app; raise `ConfigError` if it has neither tasks nor consumers."""
        app = self._needed(purpose)
        if not len(app.tasks) and not len(app.subscribed):
            raise self._without("tasks and no consumers", "@app.task or @app.consumer")
        return app

    def app_with_tasks(self, purpose: str) -> App:
        """Return the named app; raise `ConfigError` if it has no tasks."""
        app = self._needed(purpose)
        if not len(app.tasks):
            raise self._without("tasks", "@app.task")
        return app

    def _without(self, what: str, decorator: str) -> ConfigError:
        remedy = f"decorate functions with {decorator} in that module, or import the modules that do so"
        return ConfigError(f"{self._app_name} has no {what}: {remedy}")

    def _needed(self, purpose: str) -> App:
        if self._app_name is None:
            message = f"no app is named: {purpose}\nAdd --app, as in --app shop.tasks:app, or set $HOLDFAST_APP."
            raise ConfigError(message)
        return self._opened(is_needed=True)

    def run(self, work: Callable[[App], Awaitable[T]], *, app: App | None = None, creates: bool = False) -> T:
        """Run a coroutine with the app, then close it. Only with `creates` may an embedded store be created."""
        import asyncio  # only here: see `_opened`

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
    """Raise if a store does not exist or has no tables: a command that only reads must not create them."""
    require_file(app)
    await app.opened(install=False)


def require_file(app: App) -> None:
    """Raise `StoreUnavailable` if the file of an embedded store is missing, `ConfigError` for a store in memory."""
    path = file_of(app)
    if path is not None and not path.exists():
        message = (
            f"there is no database at {path}\n"
            "Pass the right one with --url or $HOLDFAST_URL, or create it with `holdfast schema install`."
        )
        raise StoreUnavailable(message)


def file_of(app: App) -> Path | None:
    """Return the file of an embedded store, None for a server; raises `ConfigError` for a store in memory."""
    if app.backend.full_url is None:
        message = f"{app.backend.url} is in memory, invisible to other processes: name a file, as in {DEFAULT_URL}"
        raise ConfigError(message)
    return app.backend.file


def check_url(url: str | None) -> None:
    """Raise `ConfigError` for an invalid URL, and warn about a password that other users can read."""
    if url is None:
        return
    if not url:
        message = f"the URL is empty: write it like {DEFAULT_URL}"
        raise ConfigError(message)
    try:
        urlsplit(url)
    except ValueError:  # Python's message may contain a password
        message = f"the URL cannot be parsed: write it like {DEFAULT_URL}"
        raise ConfigError(message) from None
    if _source_of("url") is ParameterSource.COMMANDLINE and has_password(url):
        warn(
            "the URL on the command line contains a password, which all users of this machine can read in the "
            "process list: set $HOLDFAST_URL instead"
        )


def _source_of(option: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(option)


def _chosen_app(option: str | None) -> tuple[str | None, bool]:
    """Return the name of the app, and whether it was given in the command itself, not by the environment."""
    argument: str | None = click.get_current_context().meta.get(_ARGUMENT)
    is_given = _source_of("app_name") is ParameterSource.COMMANDLINE
    if argument is None:
        return option, is_given
    if is_given and option != argument:
        raise click.UsageError(f"the app is named twice, {argument} and --app {option}: give one")
    return argument, True


def _keep_argument(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    ctx.meta[_ARGUMENT] = value


app_argument = click.argument(
    "app_argument", metavar="[MODULE:ATTR]", required=False, expose_value=False, callback=_keep_argument
)
"""The app as an argument, the same as `--app`; `store_options` must be applied, too."""


def _quieten() -> None:
    """Suppress the store's warnings in short commands; `doctor` reports them, and a worker logs them."""
    logger = logging.getLogger("holdfast")
    if not logging.getLogger().handlers:
        logger.setLevel(logging.ERROR)


def store_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add the options that select the store; the function receives a `StoreTarget` as its first argument."""

    @click.option("--url", envvar="HOLDFAST_URL", help="The URL of the store; or $HOLDFAST_URL.")
    @click.option(
        "--app",
        "app_name",
        envvar="HOLDFAST_APP",
        metavar="MODULE:ATTR",
        help="The app, or $HOLDFAST_APP; its store is used if no URL is given.",
    )
    @click.option(
        "--app-dir",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Import the app's module from here first, not from the current directory.",
    )
    @debug_option
    @functools.wraps(function)
    def command(*args: Any, url: str | None, app_name: str | None, app_dir: Path | None, **options: Any) -> T:
        return function(StoreTarget(url, app_name, app_dir), *args, **options)

    return command
