"""From errors to one or two lines on stderr and an exit code."""

from __future__ import annotations

import traceback
from typing import Any, NoReturn

import click
from rich.text import Text

from holdfast.cli.table import console
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
from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.failure import RunFailed

_DEBUG = "holdfast.debug"


MEANINGS = {
    ExitCode.FINE: "fine",
    ExitCode.WRONG: "something is wrong: no such job, nothing done, or a check that failed",
    ExitCode.USAGE: "the command was used wrongly, or refused for want of --yes",
    ExitCode.RELEASED: "the worker gave jobs back before they were done",
    ExitCode.UNDECIDED: "a torture run could not be done as planned, and shows nothing or less than it was to",
    ExitCode.UNAVAILABLE: "the store cannot be reached, or there is none",
    ExitCode.BROKEN: "an error inside Holdfast",
    ExitCode.STUCK: "the worker ended itself because a handler was stuck",
    ExitCode.CONFIGURATION: "a URL, app, name or setting cannot work, a node id is taken, or the tables are outdated",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}

_CODES: tuple[tuple[type[HoldfastError], ExitCode], ...] = (
    (SchemaMismatch, ExitCode.CONFIGURATION),
    (StoreError, ExitCode.UNAVAILABLE),
    (ConfigError, ExitCode.CONFIGURATION),
    (Unsupported, ExitCode.CONFIGURATION),
    (PayloadError, ExitCode.USAGE),
    (TaskNotFound, ExitCode.USAGE),
    (RunFailed, ExitCode.UNDECIDED),
)


class ExitError(Exception):
    """An end of the command with words for a person and an exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.WRONG) -> None:
        super().__init__(message)
        self.code = code

    @classmethod
    def of(cls, error: HoldfastError) -> ExitError:
        """Return the failure for an error of Holdfast."""
        code = next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.WRONG)
        return cls(str(error) or type(error).__name__, code)

    def show(self) -> None:
        """Print the words to stderr, without anything that acts on a terminal, and without passwords."""
        if self.code is ExitCode.INTERRUPTED:
            _tell("Stopped:", str(self), "bold yellow")  # as the person wanted
        else:
            _tell("Error:", str(self), "bold red")


def warn(text: str) -> None:
    """Tell something on stderr that does not stop the command."""
    _tell("Warning:", text, "bold yellow")


def _tell(label: str, text: str, style: str) -> None:
    """Print a message: on a terminal by whole words, elsewhere as it is."""
    safe = block(mask(text))
    out = console(stderr=True)
    if out.is_terminal:
        out.print(Text.assemble((label, style), f" {safe}"))
    else:
        click.echo(f"{label} {safe}", err=True)


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


class Noun(click.Group):
    """A group whose commands are listed in the order in which they were added, not by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return the names of the commands."""
        return list(self.commands)


class Root(Noun):
    """The group of all commands: whatever is raised below leaves it as words and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ExitError as failure:
            self._end(ctx, failure)
        except HoldfastError as error:
            if ctx.meta.get(_DEBUG):
                _show_traceback(error)
            self._end(ctx, ExitError.of(error))
        except KeyboardInterrupt:
            self._end(ctx, ExitError("interrupted", ExitCode.INTERRUPTED))
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click ends the program as it should
        except Exception as error:  # noqa: BLE001 - the last place where anything unexpected can be told
            _show_traceback(error)
            message = "this is a fault in Holdfast itself: please report it with the lines above"
            self._end(ctx, ExitError(message, ExitCode.BROKEN))

    def _end(self, ctx: click.Context, failure: ExitError) -> NoReturn:
        failure.show()
        ctx.exit(int(failure.code))


def _show_traceback(error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    click.echo(block(mask(text)), err=True)
