"""`holdfast job graph` draws a graph as text, as Mermaid and as JSON."""

from __future__ import annotations

import pytest

from holdfast import App, chain, group


@pytest.fixture
def ids(shop) -> list[str]:
    app = App(shop.url)

    @app.task
    def resize(number: int) -> int:
        return number

    @app.task
    def publish() -> None: ...

    with app.sync:
        graph = chain(resize.call(1), group(resize.call(2), resize.call(3)), publish.call())
        return [job.id for job in graph.sync.enqueue()]


def test_a_graph_is_drawn_as_a_tree_in_which_each_job_stands_once(shop, ids):
    lines = shop.run("job", "graph", ids[1]).stdout.splitlines()

    assert [line.split()[-1] for line in lines[:2]] == ["ready", "←"]
    assert [line.strip().startswith("└─") for line in lines] == [False, True, True, True]
    assert sum("publish" in line and "also after" in line for line in lines) == 1


def test_a_graph_is_drawn_in_the_language_of_mermaid(shop, ids):
    text = shop.run("job", "graph", ids[3], "--mermaid").stdout

    assert text.startswith("flowchart TD\n")
    assert text.count("-->") == 4


def test_a_graph_is_printed_as_json(shop, ids):
    found = shop.json("job", "graph", ids[0])

    assert [(job["id"], job["parents"]) for job in found["jobs"]] == [
        (ids[0], []),
        (ids[1], [ids[0]]),
        (ids[2], [ids[0]]),
        (ids[3], [ids[1], ids[2]]),
    ]
    assert shop.json("job", "graph", ids[0], "--limit", "2")["is_cut"] is True
