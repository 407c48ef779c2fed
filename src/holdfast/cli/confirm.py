"""Ask for confirmation before a command changes several objects or deletes data."""

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
    """Return the option that confirms a command in advance."""
    return click.option("--yes", "-y", is_flag=True, help=explained)


yes_to_several = yes_option("Do not ask, even if this changes several jobs.")
yes_to_all = yes_option("Do not ask for confirmation; required without a terminal.")


def require_consent(question: str, *, yes: bool) -> None:
    """Return if `--yes` was given or the user confirms; otherwise, or without a terminal, raise `ExitError`.

    Ctrl-C at the prompt ends the command, even inside an event loop.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ExitError(f"{question}\nThere is no terminal to confirm at: add --yes to confirm.", ExitCode.USAGE)
    try:
        with _interruptible():
            agreed = click.confirm(question, err=True)
    except _Interrupted:
        click.echo(err=True)  # the terminal has printed ^C in the line of the prompt
        raise ExitError("nothing was changed.", ExitCode.INTERRUPTED) from None
    if not agreed:
        raise ExitError("Nothing was changed.", ExitCode.WRONG)


class _Interrupted(Exception):  # noqa: N818 - a user's request, not an error
    """Ctrl-C was pressed. Not a KeyboardInterrupt, which click would turn into an end of input."""


@contextmanager
def _interruptible() -> Generator[None]:
    """Raise at Ctrl-C: an event loop would handle the signal only after the prompt has been answered."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupted(number: int, frame: object) -> NoReturn:  # noqa: ARG001 - the signature of a signal handler
    raise _Interrupted
