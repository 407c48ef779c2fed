"""Turn errors into one or two lines on stderr and an exit code."""

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
    PrivilegeMissing,
    SchemaMismatch,
    StoreError,
    TaskNotFound,
    Unsupported,
)
from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.failure import RunFailed

_DEBUG = "holdfast.debug"


MEANINGS = {
    ExitCode.FINE: "success",
    ExitCode.WRONG: "not found, nothing done, or a failed check",
    ExitCode.USAGE: "invalid usage, or --yes was required",
    ExitCode.RELEASED: "the worker released jobs before they were done",
    ExitCode.UNDECIDED: "a torture run without a verdict, or one that did less than planned",
    ExitCode.UNAVAILABLE: "the store cannot be reached or does not exist",
    ExitCode.BROKEN: "an internal error of Holdfast",
    ExitCode.STUCK: "the worker stopped itself because a handler was stuck",
    ExitCode.CONFIGURATION: "invalid URL, app, name or setting; a node id in use; or outdated tables",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}

_CODES: tuple[tuple[type[HoldfastError], ExitCode], ...] = (
    (SchemaMismatch, ExitCode.CONFIGURATION),
    (PrivilegeMissing, ExitCode.CONFIGURATION),
    (StoreError, ExitCode.UNAVAILABLE),
    (ConfigError, ExitCode.CONFIGURATION),
    (Unsupported, ExitCode.CONFIGURATION),
    (PayloadError, ExitCode.USAGE),
    (TaskNotFound, ExitCode.USAGE),
    (RunFailed, ExitCode.UNDECIDED),
)


class ExitError(Exception):
    """Ends the command with a message and an exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.WRONG) -> None:
        super().__init__(message)
        self.code = code

    @classmethod
    def of(cls, error: HoldfastError) -> ExitError:
        """Return the exit error for an error of Holdfast."""
        code = next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.WRONG)
        return cls(str(error) or type(error).__name__, code)

    def show(self) -> None:
        """Print the message to stderr, without control characters or passwords."""
        if self.code is ExitCode.INTERRUPTED:
            _print("Stopped:", str(self), "bold yellow")  # on request, so not an error
        else:
            _print("Error:", str(self), "bold red")


def warn(text: str) -> None:
    """Print a warning to stderr; the command continues."""
    _print("Warning:", text, "bold yellow")


def _print(label: str, text: str, style: str) -> None:
    """Print a message: wrapped at word boundaries on a terminal, unwrapped elsewhere."""
    safe = block(mask(text))
    out = console(stderr=True)
    if out.is_terminal:
        out.print(Text.assemble((label, style), f" {safe}"))
    else:
        click.echo(f"{label} {safe}", err=True)


def _set_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[_DEBUG] = value


debug_option = click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of an error.",
)


def is_debugging() -> bool:
    """Return whether `--debug` was passed to the command."""
    return bool(click.get_current_context().meta.get(_DEBUG, False))


class Noun(click.Group):
    """A group that lists its commands in the order in which they were added, not by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return the names of the commands."""
        return list(self.commands)


class Root(Noun):
    """The top-level group: it turns every exception into a message and an exit code."""

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
            raise  # click handles these
        except Exception as error:  # noqa: BLE001 - the last place where an unexpected error can be reported
            _show_traceback(error)
            message = "this is a bug in Holdfast: please report it with the traceback above"
            self._end(ctx, ExitError(message, ExitCode.BROKEN))

    def _end(self, ctx: click.Context, failure: ExitError) -> NoReturn:
        failure.show()
        ctx.exit(int(failure.code))


def _show_traceback(error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    click.echo(block(mask(text)), err=True)
