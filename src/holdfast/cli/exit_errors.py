"""Turn errors into one or two lines on stderr and an exit code."""

from __future__ import annotations

import shlex
import sys
from typing import Any, NoReturn

import click

from holdfast.cli.suggested_commands import runnable
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
from holdfast.reports.text import block, mask
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
    """Print a message: wrapped at word boundaries on a terminal, unwrapped elsewhere. Its commands are completed.

    A line with a command is left to the terminal to wrap, so that the command can be copied as one line.
    """
    safe = block(mask(runnable(text)))
    if not sys.stderr.isatty():
        click.echo(f"{label} {safe}", err=True)
        return
    # Only here: most commands print no message, and importing rich takes time.
    from rich.text import Text

    from holdfast.cli.table import console

    out = console(stderr=True)
    first, *others = safe.split("\n")
    for part in (Text.assemble((label, style), f" {first}"), *map(Text, others)):
        out.print(part, soft_wrap="holdfast " in part.plain)


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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options; for `holdfast worker -A orders`, raise `UsageError` with the place of an option."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            example = f"{ctx.command_path} {next(iter(self.commands))} …"
            raise click.UsageError(f"{error.message} Options follow the command, as in `{example}`.", ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for `holdfast worker orders:app`, raise `UsageError` with the command that is meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if ":" in args[0] and self.get_command(ctx, "run") is not None:
                meant = shlex.join(["holdfast", str(self.name), "run", *args])
                raise click.UsageError(f"{error.message} Did you mean `{meant}`?", ctx) from None
            if not self.commands or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} The commands are {', '.join(self.commands)}.", ctx) from None


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
    import traceback  # only for an error

    text = "".join(traceback.format_exception(error))
    click.echo(block(mask(text)), err=True)
