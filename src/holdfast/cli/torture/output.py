"""Print a verdict, even if the reader of stdout has gone away."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.exit_errors import ExitError, warn
from holdfast.cli.json_output import show_json
from holdfast.reports.text import line
from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from holdfast.torture.report import RunReport


class VerdictOutput:
    """Prints messages and the report; if stdout is closed, messages go to stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_open = True

    def print_line(self, text: str) -> None:
        """Print a line that is not part of the report: to stderr if stdout has the JSON document or is closed."""
        if self._is_open and not self._as_json:
            with self._surviving_closed_stdout():
                click.echo(line(text))
                return
        with contextlib.suppress(BrokenPipeError):
            click.echo(line(text), err=True)

    def show(self, report: RunReport) -> None:
        """Print the report."""
        from holdfast.cli.torture.report import show_report, unreached

        with self._surviving_closed_stdout():
            if self._as_json:
                show_json(msgspec.to_builtins(report))
            else:
                show_report(report)
        if self._as_json and report.is_clean and not report.reached:
            self.print_line(f"Clean, but the run did less than planned: {unreached(report)}.")

    @contextlib.contextmanager
    def _surviving_closed_stdout(self) -> Generator[None]:
        """Continue if stdout was closed by its reader: rich raises SystemExit then, click BrokenPipeError."""
        try:
            yield
        except (BrokenPipeError, SystemExit):
            self._is_open = False
            with contextlib.suppress(OSError, ValueError):  # the interpreter flushes the buffer at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def require_writable(file: Path) -> None:
    """Raise if the report file cannot be written: before the run, not after it."""
    was_there = file.exists()
    try:
        file.open("ab").close()
        if not was_there:
            file.unlink()
    except OSError as error:
        reason = error.strerror or error
        message = f"--report {file} cannot be written ({reason}): create its directory, or choose another file"
        raise ExitError(message, ExitCode.USAGE) from None


def write_report(file: Path, report: RunReport) -> bool:
    """Write the report as JSON; return whether that succeeded."""
    document: dict[str, Any] = msgspec.to_builtins(report)
    try:
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="ascii")
    except OSError as error:
        warn(f"the report could not be written to {file} ({error.strerror or error}); the verdict is still valid")
        return False
    return True
