"""From errors to one or two lines on stderr and an exit code."""

from __future__ import annotations

import sys
import traceback
from enum import IntEnum
from typing import Any

import click

from holdfast.cli.text import block, mask
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    PayloadError,
    SchemaMismatch,
    StoreError,
    TaskNotFound,
    Unsupported,
)
from holdfast.worker.decision import BROKEN, STUCK, Exit

_DEBUG = "holdfast.debug"


class Code(IntEnum):
    """The exit codes of every command."""

    FINE = 0
    WRONG = 1
    USAGE = 2
    RELEASED = Exit.RELEASED
    UNAVAILABLE = 69
    INTERNAL = BROKEN
    STUCK = STUCK
    CONFIGURATION = 78
    INTERRUPTED = 130


MEANINGS = {
    Code.FINE: "fine",
    Code.WRONG: "something is wrong: no such job, nothing could be done, the doctor found something bad",
    Code.USAGE: "the command was used wrongly, or refused for want of --yes",
    Code.RELEASED: "the worker gave jobs back before they were done",
    Code.UNAVAILABLE: "the store cannot be reached, or there is none",
    Code.INTERNAL: "an error inside Holdfast",
    Code.STUCK: "the worker ended itself because a handler was stuck",
    Code.CONFIGURATION: "a URL, an app, a name or a setting cannot work; or the tables need an upgrade",
    Code.INTERRUPTED: "interrupted by Ctrl-C",
}

_CODES: tuple[tuple[type[HoldfastError], Code], ...] = (
    (SchemaMismatch, Code.CONFIGURATION),
    (StoreError, Code.UNAVAILABLE),
    (ConfigError, Code.CONFIGURATION),
    (Unsupported, Code.CONFIGURATION),
    (PayloadError, Code.USAGE),
    (TaskNotFound, Code.USAGE),
)


class Failure(click.ClickException):
    """An error that the command line has words for."""

    def __init__(self, message: str, code: Code = Code.WRONG) -> None:
        super().__init__(message)
        self.exit_code = int(code)

    def format_message(self) -> str:
        """Return the text without anything that acts on a terminal, and without passwords."""
        return block(mask(self.message))

    @classmethod
    def of(cls, error: HoldfastError) -> Failure:
        """Return the failure for an error of Holdfast."""
        code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.WRONG)
        return cls(str(error) or type(error).__name__, code)


def warn(text: str) -> None:
    """Tell something on stderr that does not stop the command."""
    click.echo(block(mask(f"Warning: {text}")), err=True)


def _note_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[_DEBUG] = value


debug_option = click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_note_debug,
    help="Show the traceback of an error.",
)


def is_debugging() -> bool:
    """Tell whether the command was given `--debug`."""
    return bool(click.get_current_context().meta.get(_DEBUG, False))


class Root(click.Group):
    """The group of all commands: whatever is raised below leaves it as words and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        """Run the command."""
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            if ctx.meta.get(_DEBUG):
                _show_traceback(error)
            raise Failure.of(error) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(Code.INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click ends the program as it should
        except Exception as error:  # noqa: BLE001 - the last place where anything unexpected can be told
            _show_traceback(error)
            message = "this is an error inside Holdfast: please report it with the lines above"
            raise Failure(message, Code.INTERNAL) from error


def _show_traceback(error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    print(block(mask(text)), file=sys.stderr)
