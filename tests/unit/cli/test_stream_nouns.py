"""Consumers, categories, nodes and the leader; what is parked has a file of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.unit.cli.conftest import grant


def test_consumers_are_listed_with_lag_and_owner(streams):
    grant(streams)
    (consumer,) = streams.json("consumer", "list")["consumers"]
    assert (consumer["name"], consumer["category"], consumer["lag"]) == ("billing", "orders", 3)
    assert consumer["state"] == "running"
    assert consumer["nodes"] == [{"node_id": "node-a", "is_silent": False}]
    assert consumer["behind_seconds"] >= 0
    (share,) = consumer["partitions"]
    assert (share["owner"], share["generation"], share["state"], share["head"]) == ("node-a", "1", "granted", 3)
    line = streams.run("consumer", "list").stdout.splitlines()[1]
    assert line.startswith("billing\tcategory orders\trunning\t3\t")
    assert "orders:0\tgranted\t0\t3\t3\t" in streams.run("consumer", "list", "--partitions").stdout


def test_a_consumer_whose_only_node_is_dead_does_not_run(streams, tmp_path):
    grant(streams)
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute("update holdfast_node set heartbeat_at = heartbeat_at - 3600000000")
    (consumer,) = streams.json("consumer", "list")["consumers"]
    assert (consumer["state"], consumer["nodes"]) == ("waiting", [{"node_id": "node-a", "is_silent": True}])
    assert streams.run("consumer", "list").stdout.splitlines()[1].endswith("\tnode-a (silent)")
    (node,) = streams.json("node", "list")["nodes"]
    assert node["state"] == "silent"
    assert node["silent_seconds"] > 3600


def test_without_any_the_lists_say_how_they_come_into_being(shop):
    shop.enqueue()
    assert "registered when a worker first runs them" in shop.run("consumer", "list").stderr
    assert "The first append creates one" in shop.run("category", "list").stderr
    assert "worker with consumers is one" in shop.run("node", "list").stderr
    assert "There is no leader" in shop.run("leader", "show").stderr
    assert shop.json("leader", "show") == {"leader": None}


def test_a_consumer_is_paused_and_resumed_and_says_if_it_was_so_already(streams):
    assert streams.run("consumer", "pause", "billing").stdout == "billing paused\n"
    assert streams.run("consumer", "pause", "billing").stdout == "billing was already paused\n"
    assert "\tpaused\t" in streams.run("consumer", "list").stdout
    assert streams.run("consumer", "resume", "billing").stdout == "billing resumed\n"
    assert streams.run("consumer", "resume", "billing").stdout == "billing was not paused\n"


def test_a_consumer_that_nobody_knows_is_an_error(streams):
    assert "no consumer 'billling'" in streams.run("consumer", "pause", "billling", code=1).stderr


@pytest.mark.parametrize(
    ("to", "left"),
    [("end", "0 events"), ("beginning", "3 events"), ("2", "1 event"), ("2001-01-01T00:00:00Z", "3 events")],
)
def test_a_consumer_is_reset_to_a_place(streams, to, left):
    said = streams.run("consumer", "reset", "billing", "--to", to, "--yes").stdout
    assert said == f"billing reset to {to}: {left} left\n"
    assert streams.json("consumer", "list")["consumers"][0]["state"] == "waiting"


def test_to_reset_is_asked_before(streams):
    assert "3 left" in streams.run("consumer", "reset", "billing", "--to", "end", code=2).stderr


@pytest.mark.parametrize("to", ["yesterday", "2001-01-01T00:00:00", "-1"])
def test_a_place_that_is_none_is_refused(streams, to):
    assert "--to" in streams.run("consumer", "reset", "billing", "--to", to, "--yes", code=2).stderr


def test_a_consumer_that_a_living_node_holds_is_not_reset(streams):
    grant(streams)
    error = streams.run("consumer", "reset", "billing", "--to", "end", "--within", "100ms", "--yes", code=1).stderr
    assert "still held by a node" in error
    assert streams.json("consumer", "list")["consumers"][0]["state"] == "running"


def test_a_paused_consumer_is_forgotten(streams):
    streams.run("consumer", "pause", "billing")
    assert streams.run("consumer", "forget", "billing", "--yes").stdout == "billing forgotten\n"
    assert streams.json("consumer", "list")["consumers"] == []


def test_a_consumer_that_is_not_paused_is_not_forgotten_and_the_remedy_told(streams):
    told = streams.run("consumer", "forget", "billing", "--yes", code=1).stderr
    assert (
        told == "Error: billing is not paused, so it was not deleted\nPause it first: holdfast consumer pause billing\n"
    )
    assert len(streams.json("consumer", "list")["consumers"]) == 1


def test_a_paused_consumer_that_a_living_node_holds_is_not_forgotten(streams):
    grant(streams)
    streams.run("consumer", "pause", "billing")
    assert "still runs on a node" in streams.run("consumer", "forget", "billing", "--yes", code=1).stderr


def test_categories_are_listed_and_shown(streams):
    (category,) = streams.json("category", "list")["categories"]
    assert category == {"name": "orders", "partitions": 1, "heads": [3], "trimmed": [0], "appended": 3, "kept": 3}
    assert streams.run("category", "list").stdout.splitlines()[1] == "orders\t1\t3\t3"
    assert streams.run("category", "show", "orders").stdout.splitlines()[1] == "orders:0\t3\t0\t3"
    assert "no category 'order'" in streams.run("category", "show", "order", code=1).stderr


def test_nodes_and_the_leader_are_shown(streams):
    grant(streams)
    (node,) = streams.json("node", "list")["nodes"]
    assert (node["node_id"], node["state"], node["partitions"], node["pid"]) == ("node-a", "live", 1, 42)
    assert node["consumers"] == {"billing": 2}
    assert 0 <= node["silent_seconds"] < 15
    assert node["joined_seconds"] >= 0
    row = streams.run("node", "list").stdout.splitlines()[1].split("\t")
    assert (row[:2], row[5:]) == (["node-a", "live"], ["billing", "here", "42"])
    leader = streams.json("leader", "show")["leader"]
    assert (leader["node_id"], leader["epoch"]) == ("node-a", 1)
    assert "epoch\t1" in streams.run("leader", "show").stdout
