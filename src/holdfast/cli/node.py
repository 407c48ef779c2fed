"""`holdfast node` and `holdfast leader`: the nodes of the consumers, and the one that allocates partitions."""

from __future__ import annotations

import click

from holdfast.cli.exit_errors import Noun
from holdfast.cli.json_output import json_option, seconds, show_json
from holdfast.cli.table import Cell, Column, show_fields, show_table
from holdfast.cli.target import StoreTarget, store_options
from holdfast.reports.states import node_state
from holdfast.reports.times import span
from holdfast.store.stream_values import NodeView

_COLUMNS = (
    Column("node", shrinks=True, keeps_end=True),
    Column("state", coloured=True),
    Column("heartbeat", right=True),
    Column("partitions", right=True),
    Column("joined", right=True),
    Column("consumers", shrinks=True),
    Column("host", shrinks=True, optional=True),
    Column("pid", right=True, optional=True),
)


@click.group(cls=Noun)
def node() -> None:
    """Inspect the nodes that run consumers."""


@node.command("list")
@json_option
@store_options
def list_nodes(target: StoreTarget, *, as_json: bool) -> None:
    """List the nodes; silent ones are marked."""
    views = target.run(lambda app: app.nodes())
    if as_json:
        document = [
            {
                "node_id": view.node.node_id,
                "incarnation": view.node.incarnation,
                "state": node_state(view),
                "partitions": view.shares,
                "host": view.host,
                "pid": view.pid,
                "silent_seconds": seconds(view.silent),
                "joined_seconds": seconds(view.joined),
                "consumers": {member.consumer: member.capacity for member in view.members},
            }
            for view in views
        ]
        show_json({"nodes": document})
        return
    if not views:
        click.echo("No nodes. Every worker with consumers is one.", err=True)
        return
    show_table(_COLUMNS, [_row(view) for view in views])


def _row(view: NodeView) -> tuple[Cell, ...]:
    return (
        view.node.node_id,
        node_state(view),
        view.silent,
        view.shares,
        view.joined,
        ", ".join(member.consumer for member in view.members),
        view.host,
        view.pid,
    )


@click.group(cls=Noun)
def leader() -> None:
    """Inspect the node that allocates partitions."""


@leader.command()
@json_option
@store_options
def show(target: StoreTarget, *, as_json: bool) -> None:
    """Show the leader. Only the speed of allocation depends on it, not its safety."""
    view = target.run(lambda app: app.leader())
    if as_json:
        fields = None
        if view is not None:
            fields = {
                "node_id": view.leadership.node.node_id,
                "incarnation": view.leadership.node.incarnation,
                "epoch": view.leadership.epoch,
                "expires_in_seconds": seconds(view.expires_in),
            }
        show_json({"leader": fields})
        return
    if view is None:
        click.echo("There is no leader. The next node that runs becomes the leader.", err=True)
        return
    is_over = view.expires_in.total_seconds() < 0
    lease = f"expired {span(-view.expires_in)} ago" if is_over else f"for {span(view.expires_in)} more"
    show_fields(
        [("node", view.leadership.node.node_id), ("epoch", view.leadership.epoch), (Column("lease", True), lease)]
    )
