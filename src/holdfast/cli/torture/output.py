"""Telling of a verdict, whatever becomes of those who read it."""

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
from holdfast.cli.text import line
from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from holdfast.torture.report import RunReport


class Teller:
    """Says what a person or a program is to read; once nobody reads stdout, what matters goes to stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_heard = True

    def say(self, text: str) -> None:
        """Say a line that is no part of a document."""
        if self._is_heard and not self._as_json:
            with self._outliving_readers():
                click.echo(line(text))
                return
        with contextlib.suppress(BrokenPipeError):
            click.echo(line(text), err=True)

    def show(self, report: RunReport) -> None:
        """Show the report."""
        from holdfast.cli.torture.report import show_report, unreached

        with self._outliving_readers():
            if self._as_json:
                show_json(msgspec.to_builtins(report))
            else:
                show_report(report)
        if self._as_json and report.is_clean and not report.reached:
            self.say(f"Clean, but not all that was planned could be done: {unreached(report)}.")

    @contextlib.contextmanager
    def _outliving_readers(self) -> Generator[None]:
        """Go on if what reads stdout has gone: rich leaves the program then, and others raise."""
        try:
            yield
        except (BrokenPipeError, SystemExit):
            self._is_heard = False
            with contextlib.suppress(OSError, ValueError):  # what is still in its buffer has to go somewhere
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def require_writable(file: Path) -> None:
    """Refuse a file for the report that cannot be written, before a run rather than after it."""
    was_there = file.exists()
    try:
        file.open("ab").close()
        if not was_there:
            file.unlink()
    except OSError as error:
        reason = error.strerror or error
        message = f"--report {file} cannot be written ({reason}): create its directory, or name another file"
        raise ExitError(message, ExitCode.USAGE) from None


def write_report(file: Path, report: RunReport) -> bool:
    """Write the report as JSON; tell whether that could be done."""
    document: dict[str, Any] = msgspec.to_builtins(report)
    try:
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="ascii")
    except OSError as error:
        warn(f"the report could not be written to {file} ({error.strerror or error}); the verdict stands")
        return False
    return True
