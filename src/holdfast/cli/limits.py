"""The options of `queue limit` and `task limit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.model.limits import Limit

F = TypeVar("F", bound=Callable[..., Any])


def limit_options(command: F) -> F:
    """Add --running, --rate, --burst and --none."""
    for option in (
        click.option("--none", "is_removed", is_flag=True, help="Remove the limit."),
        click.option("--burst", type=int, metavar="N", help="Starts at once, within the rate; 1 by default."),
        click.option("--rate", metavar="N/TIME", help="Starts per time, as 100/m, 5/s or 1/10s."),
        click.option("--running", type=int, metavar="N", help="The maximum number of jobs at once, over all workers."),
    ):
        command = option(command)
    return command


def given_limit(*, running: int | None, rate: str | None, burst: int | None, is_removed: bool) -> Limit | None:
    """Return the limit that the options describe; None with --none."""
    if is_removed:
        if running is not None or rate is not None or burst is not None:
            raise click.UsageError("--none removes the limit: leave out --running, --rate and --burst.")
        return None
    if running is None and rate is None:
        raise click.UsageError("Add --running N, --rate N/TIME or both; --none removes the limit.")
    return Limit(running=running, rate=rate, burst=1 if burst is None else burst)
