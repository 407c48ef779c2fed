"""Every list fits a terminal of 80 columns: one line for each object, with ids that every command accepts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from rich.cells import cell_len
from tests.unit.cli.conftest import APP, Shop, park

from holdfast.cli.table import Column, Id, fitted, shortened
from holdfast.store.values import WorkerHeartbeat

LISTS = (
    ("job", "list"),
    ("job", "list", "--state", "failed"),
    ("queue", "list"),
    ("task", "list"),
    ("schedule", "list"),
    ("event", "read", "orders"),
    ("lease", "list"),
    ("worker", "list"),
    ("consumer", "list"),
    ("consumer", "list", "--partitions"),
    ("consumer", "parked", "billing"),
    ("category", "list"),
    ("category", "show", "orders"),
    ("node", "list"),
)


@pytest.fixture
def full(streams: Shop) -> Shop:
    """A store with jobs in every state, workers, consumers and parked events, all with names of ordinary length."""
    for number in range(4):
        streams.enqueue("charge", "--arg", f"order_id={number}", "--order-key", f"customer-{number % 2}")
    streams.enqueue("charge", "--arg", "order_id=9", "--queue", "invoices-europe", "--delay", "5m")
    streams.fail("the card of the customer was declined by the bank because its limit was reached long ago")
    streams.complete()
    job = streams.claim(worker_id="payments-worker-27073.83c2de8a")
    streams.within(lambda backend: backend.jobs.progress(job.lease, 40, "reading the ledger of the third quarter"))
    heartbeat = WorkerHeartbeat(
        "payments-worker-27073.83c2de8a",
        "ip-10-0-12-17.eu-central-1.compute.internal",
        27073,
        ("orders", "invoices-europe", "invoices-africa"),
        10,
        timedelta(seconds=30),
        1,
    )

    async def beat(backend):
        extender = backend.extender()
        extender.heartbeat(heartbeat)
        extender.close()

    streams.within(beat)
    park(streams)
    streams.run(
        *("schedule", "add", "reconciliation", "charge", "--cron", "30 2 * * MON-FRI", *APP, "--arg", "order_id=7"),
        *("--timezone", "Europe/Vienna", "--queue", "invoices-europe"),
    )
    return streams


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
@pytest.mark.parametrize("width", [80, 140])
def test_a_list_has_one_line_for_each_object_and_none_is_too_long(full, words, width):
    rows = len(full.run(*words).stdout.splitlines())
    lines = full.screen(*words, width=width)
    assert len(lines) == rows + 1, "a line of headings, one below it, and one for each object"
    assert max(map(cell_len, lines)) <= width


def test_a_queue_shows_what_was_completed_lately_on_a_narrow_terminal(full):
    assert full.screen("queue", "list")[0].split()[-3:] == ["completed", "/5", "min"]


def test_ids_are_short_on_a_narrow_terminal_and_whole_on_a_wide_one(full):
    (job,) = full.json("job", "list", "--state", "failed")["jobs"]
    (short,) = [line.split()[0] for line in full.screen("job", "list", "--state", "failed")[2:]]
    (whole,) = [line.split()[0] for line in full.screen("job", "list", "--state", "failed", width=110)[2:]]
    assert (short, whole) == (f"{job['seq']}.{job['id'][-4:]}", job["id"])
    assert full.json("job", "show", short)["id"] == job["id"]
    assert full.run("job", "list", "--state", "failed").stdout.splitlines()[1].startswith(job["id"])


def test_the_short_id_of_a_parked_event_is_accepted(full):
    listed = full.json("consumer", "parked", "billing")["parked"][0]
    short = full.screen("consumer", "parked", "billing")[2].split()[0]
    assert listed["event_id"].endswith(short)
    assert "1 parked event" in full.run("consumer", "drop", "billing", "--event", short, "--yes").stdout


def test_states_are_coloured_on_a_terminal_and_plain_in_a_pipe(full):
    screen = "\n".join(full.screen("job", "list", colour=True))
    assert "\x1b[31mfailed" in screen
    assert "\x1b[32mcompleted" in screen
    assert "\x1b" not in full.run("job", "list").stdout


def test_a_text_is_shortened_at_its_end_or_in_its_middle():
    assert shortened("abcdefgh", 8) == "abcdefgh"
    assert shortened("abcdefgh", 5) == "abcd…"
    assert shortened("worker-27073.83c2", 9, keeps_end=True) == "work…83c2"
    assert cell_len(shortened("送金送金送金送金", 7)) <= 7


def test_optional_columns_go_before_texts_are_cut_short():
    columns = (Column("id"), Column("name", shrinks=True), Column("one", optional=True), Column("two", optional=True))
    row = (Id("7.9dbf", "01a1de74-f8d6-720e-a5d5-53e8b6fe34b7"), "n" * 40, "1" * 10, "2" * 10)
    headings = [[column.name for column in fitted(columns, [row], width)[0]] for width in (200, 56, 46, 34)]
    assert headings == [
        ["id", "name", "one", "two"],
        ["id", "name", "one", "two"],
        ["id", "name", "one"],
        ["id", "name"],
    ]


def test_the_pid_of_a_worker_is_shown_on_a_narrow_terminal_whatever_the_length_of_its_name(full):
    heading, _, row = full.screen("worker", "list")
    assert heading.split()[:5] == ["worker", "state", "heartbeat", "running", "pid"]
    assert row.split()[3:5] == ["1/10", "27073"]
