"""Asking before several things are changed, or something is lost for ever."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click

from holdfast.cli.exit_errors import ExitError
from holdfast.runtime.exit_code import ExitCode

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(explained: str) -> Callable[[F], F]:
    """Give a command the option that answers its question beforehand."""
    return click.option("--yes", "-y", is_flag=True, help=explained)


yes_to_several = yes_option("Do not ask, even if this changes several jobs.")
yes_to_all = yes_option("Do not ask first; needed where there is no terminal to ask at.")


def require_consent(question: str, *, yes: bool) -> None:
    """Go on if `--yes` was given or the person at the terminal agrees; refuse where there is nobody to ask.

    Ctrl-C at the question ends the command, within an event loop too.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ExitError(f"{question}\nThere is no terminal to ask at: add --yes to do it.", ExitCode.USAGE)
    try:
        with _interruptible():
            agreed = click.confirm(question, err=True)
    except _Interrupted:
        click.echo(err=True)  # the terminal's ^C stands in the line of the question
        raise ExitError("nothing was changed.", ExitCode.INTERRUPTED) from None
    if not agreed:
        raise ExitError("Nothing was changed.", ExitCode.WRONG)


class _Interrupted(Exception):  # noqa: N818 - a person's wish
    """Ctrl-C was pressed. Not KeyboardInterrupt, of which click makes an end of input."""


@contextmanager
def _interruptible() -> Generator[None]:
    """Raise at Ctrl-C: an event loop would only note it, and act on it after the answer that it waits for."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupted(number: int, frame: object) -> NoReturn:  # noqa: ARG001 - as Python calls it
    raise _Interrupted
