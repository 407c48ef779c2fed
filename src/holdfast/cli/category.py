"""`holdfast category`: create, list and show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.exit_errors import Noun
from holdfast.cli.json_output import json_option, show_json
from holdfast.cli.table import Column, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.errors import CategoryNotFound
from holdfast.model.counted import counted
from holdfast.model.event import DEFAULT_PARTITIONS, MAX_PARTITIONS
from holdfast.store.stream_values import CategoryView

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (
    Column("category", shrinks=True),
    Column("partitions", right=True),
    Column("appended", right=True),
    Column("kept", right=True),
)
_PARTITION_COLUMNS = (
    Column("partition", shrinks=True, keeps_end=True),
    Column("head", right=True),
    Column("trimmed", right=True),
    Column("kept", right=True),
)


@click.group(cls=Noun)
def category() -> None:
    """Create and inspect categories of streams."""


def _fields(view: CategoryView) -> dict[str, object]:
    return {**msgspec.structs.asdict(view), "appended": view.appended, "kept": view.kept}


@category.command("list")
@json_option
@store_options
def list_categories(target: StoreTarget, *, as_json: bool) -> None:
    """List categories, with the number of events appended and kept."""
    views = target.run(lambda app: app.categories())
    if as_json:
        show_json({"categories": [_fields(view) for view in views]})
        return
    if not views:
        click.echo("No categories. The first append creates one.", err=True)
        return
    show_table(_COLUMNS, [(view.name, view.partitions, view.appended, view.kept) for view in views])


@category.command()
@click.argument("name", metavar="CATEGORY")
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS),
    metavar="N",
    default=DEFAULT_PARTITIONS,
    show_default=True,
    help="The number of partitions. It can never be changed.",
)
@store_options
def create(target: StoreTarget, *, name: str, partitions: int) -> None:
    """Create a category. The number of its partitions is fixed for good.

    It limits how many nodes can share the work of a consumer.

    \b
    holdfast category create companies --partitions 32
    """  # noqa: D301 - \b keeps click from joining lines

    async def make(app: App) -> bool:
        is_new = all(view.name != name for view in await app.categories())
        await app.category(name, partitions=partitions)
        return is_new

    if target.run(make):
        click.echo(f"{name} created with {counted(partitions, 'partition')}; their number can never be changed")
    else:
        click.echo(f"{name} exists already, with {counted(partitions, 'partition')}: nothing was changed.", err=True)


@category.command()
@click.argument("name", metavar="CATEGORY")
@json_option
@store_options
def show(target: StoreTarget, *, name: str, as_json: bool) -> None:
    """Show the partitions of a category."""
    views = [view for view in target.run(lambda app: app.categories()) if view.name == name]
    if not views:
        raise CategoryNotFound(f"there is no category {name!r}: the first append to it creates it")
    (view,) = views
    if as_json:
        show_json(_fields(view))
        return
    rows = [
        (f"{name}:{number}", head, trimmed, head - trimmed)
        for number, (head, trimmed) in enumerate(zip(view.heads, view.trimmed, strict=True))
    ]
    show_table(_PARTITION_COLUMNS, rows)
