"""The commands `pause` and `resume` of queues, tasks, schedules and consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

import click

from holdfast.cli.exit_errors import warn

Change = Callable[[str], Awaitable[bool]]


async def pause_each(names: Sequence[str], pause: Change) -> None:
    """Pause each, and print what has changed."""
    for name in names:
        click.echo(f"{name} {'paused' if await pause(name) else 'was already paused'}")


async def pause_known(
    names: Sequence[str], pause: Change, *, known: Collection[str], unknown: Callable[[str, Collection[str]], str]
) -> None:
    """Pause each, and warn of a name that is not known: it may be a typing error."""
    for name in names:
        await pause_each([name], pause)
        if name not in known:
            warn(unknown(name, known))


async def resume_each(names: Sequence[str], resume: Change) -> None:
    """Resume each, and print what has changed."""
    for name in names:
        click.echo(f"{name} {'resumed' if await resume(name) else 'was not paused'}")
