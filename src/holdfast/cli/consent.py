"""Asking before several things are changed, or something is lost for ever."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.cli.failures import Code, Failure

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(explained: str) -> Callable[[F], F]:
    """Give a command the option that answers its question beforehand."""
    return click.option("--yes", "-y", is_flag=True, help=explained)


yes_to_several = yes_option("Do not ask, even if this changes several jobs.")
yes_to_all = yes_option("Do not ask first; needed where there is no terminal to ask at.")


def require_consent(question: str, *, yes: bool) -> None:
    """Go on if `--yes` was given or the person at the terminal agrees; refuse where there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(f"{question}\nThere is no terminal to ask at: add --yes to do it.", Code.USAGE)
    if not click.confirm(question, err=True):
        raise Failure("Nothing was changed.", Code.WRONG)
