"""Asking before more than one thing is changed."""

from __future__ import annotations

import sys

import click

from holdfast.cli.failures import Code, Failure

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask, even if this changes several jobs.")


def require_consent(question: str, *, yes: bool) -> None:
    """Go on if `--yes` was given or the person at the terminal agrees; refuse where there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(f"{question} There is no terminal to ask at: add --yes to do it.", Code.USAGE)
    if not click.confirm(question, err=True):
        raise Failure("Nothing was changed.", Code.WRONG)
