"""Each statement reads, and locks, a bounded number of rows, however many there are.

The plans are not asked for, but run: the server counts the rows that a session has read, those of temporary tables and
those that it threw away included.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pymysql
import pytest
from tests.servers import mysql

from holdfast.app.open import open_backend
from holdfast.backends.mysql.statements import TEMPLATES, MysqlStatements
from holdfast.backends.sql.steps import Numbers


class Amounts(NamedTuple):
    """How many rows a statement is given, and how many leases there are: the first jobs.

    All other jobs are ready, scheduled, blocked and ended at once.
    """

    some: int
    running: int

    @property
    def seqs(self) -> Numbers:
        """Leases; with gaps, so that no range stands for them."""
        return Numbers(range(1, 2 * self.some, 2))

    @property
    def waiting(self) -> Numbers:
        return Numbers(seq + self.running for seq in self.seqs)

    @property
    def bound(self) -> int:
        """How many rows one statement may read, temporary tables included."""
        return 30 * self.some


MANY, FEW = Amounts(50, 5_000), Amounts(5, 400)


def amounts_of(rows: int) -> Amounts:
    """Return what is given to statements over so many rows: few enough that a scan of all rows reads more."""
    return FEW if 0 < rows <= 1_000 else MANY


def parameters(name: str, amounts: Amounts) -> dict[str, Any]:
    """Return the parameters of a statement; those that are not named are 1."""
    some, running, seqs, waiting = *amounts, amounts.seqs, amounts.waiting
    lane_range = {"first": running + 1, "last": running + some, "turn": running + 3}
    ids = [f"018f0000-0000-7000-8000-{seq:012d}" for seq in seqs]
    scope = {"task": "greet", "unique_scope": "period", "period": 1}
    listed = {"seqs": seqs}
    given: dict[str, Any] = {
        **dict.fromkeys(("limit", "count", "most", "last"), some),
        **dict.fromkeys(("seq", "run_at", "turn", "child_seq", "parent_seq", "position", "position_id"), running + 300),
        **dict.fromkeys(("name", "order_key", "unique_key", "limit_key"), str(running + 300)),
        **dict.fromkeys(("queue", "owner", "event_id", "longest"), None),
        **dict.fromkeys(("category", "after_category"), "shop"),
        **dict.fromkeys(("rooms", "excess", "handled"), Numbers([1])),
        **dict.fromkeys(("change_ids", "tally_ids", "fences", "positions"), seqs),
        "id": ids[3],
        "ids": ids,
        "key_id": -running - 300,
        "key_ids": [-seq for seq in waiting],
        "seqs": waiting,
        "claims": [{**scope, "unique_key": str(seq), "id": job_id} for seq, job_id in zip(seqs, ids, strict=True)],
        "places": [(seq, seq) for seq in waiting],
        **NAMES,
    }
    otherwise: dict[str, dict[str, Any]] = {
        **{key: {"turn": 0, "seq": 0} for key in ("lock_front", "lane_front")},
        **dict.fromkeys(("lease_range", "leave_front_range"), lane_range),
        **dict.fromkeys(("lock_leases", "held_among", "lock_batch", "lock_extendable", "extend_many", "ended"), listed),
        **dict.fromkeys(("seen_leases", "leave_listed", "count_completed_listed", "join_limit_keys"), listed),
        "find_ids": {"first": ids[0], "last": ids[-1]},
        "complete_listed": {"seqs": seqs, "fence": 0},
        "lock_lease": {"seq": 1, "fence": 1},
        "first_of_key": {"key_id": 7},
        "jobs_ahead": {"turn": 10**9, "seq": 10**9},
        "take_order_key": {"queue": "default", "order_key": "7"},
        "put_blocked": {"seq": 1},
        "read_stream_backwards": {"after": 10**9},
    }
    return defaultdict(lambda: 1, {**given, **otherwise.get(name, {})})


NAMES: dict[str, Any] = {
    "task": "greet",
    "tasks": ["greet"],
    "queues": ["default"],
    "worker_id": "w",
    "worker_ids": ["w"],
    "fence": 3,
    "kind": "k",
    "before": 10**9,
    "kept": 100,
    "every": 100,
    "stream": "s7",
    "streams": ["s7"],
    "categories": ["shop"],
    "consumer": "mail",
    "consumers": ["mail"],
    "after": 100,
    "partition_ids": [1],
    "node_id": "n",
    "node_ids": ["n"],
    "incarnation": "i",
    "names": ["s"],
    "attempt": 9,
}
WHOLE = {
    # They count, or list from the first one on, for operators.
    *("counts", "count_sums", "depth", "outstanding", "first_records", "list_consumers", "list_parked"),
    # All parked events of a consumer, or of one stream of it, or of a category that is trimmed.
    *("drop_parked", "drop_parked_past", "drop_trimmed_parked", "forget_parked", "retry_parked", "retry_no_more"),
    *("parked_among", "retrying_among"),
    # They delete what is too old, a bounded part of it each time, and change all keys of a task.
    *("trim_transitions", "wake_limit_keys"),
}
"""The statements that read all rows of something."""
LEASES = {
    *("cancel_asked", "clear_isolation", "lock_expired", "lock_of_worker", "unacknowledged_leases"),
    *("queues", "tasks", "workers"),
}
"""The statements that read all leases, of which there are as many as the fleet has slots: some twice, to count them."""
FEWER = 20_000  # of what is not ready, and of events: more of them take minutes, and show no more

DIGITS = "(select 0 as d union all " + " union all ".join(f"select {n}" for n in range(1, 10)) + ")"
FILL = """
insert into holdfast_queue (queue) values ('default');
insert into holdfast_lane (lane_id, queue, task) values (1, 'default', 'greet'), (2, 'default', 'other');
insert into holdfast_job
    (seq, id, lane_id, payload, priority, max_attempts, enqueued_at, turn, payload_bytes, order_key)
select n, concat('018f0000-0000-7000-8000-', lpad(n, 12, '0')), 1, '[]', 0, 5, 1, n, 2, n from {numbers};
insert into holdfast_ready (lane_id, turn, seq, payload_bytes)
select 1, seq, seq, 2 from holdfast_job where seq > {running};
insert into holdfast_scheduled (run_at, seq, retrying)
select seq, seq, 0 from holdfast_job where seq between {running} + 1 and {fewer};
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at)
select seq, seq, 'w', 1, 1, 1 from holdfast_job where seq between {running} + 1 and {fewer};
insert into holdfast_key_head (key_id, queue, order_key, head_seq)
select seq, 'default', seq, seq from holdfast_job where seq <= {fewer};
insert into holdfast_blocked (seq, key_id, place)
select seq, seq % {running} + 1, seq from holdfast_job where seq between {running} + 1 and {fewer};
insert into holdfast_unique_key (task, unique_key, id, unique_scope, until_at)
select 'greet', seq, id, 'period', seq from holdfast_job where seq <= {fewer};
insert into holdfast_running
    (seq, lane_id, fence, worker_id, lease_until, lease_span, started_at, attempt, excused, interrupted, lost, isolated)
select seq, 1, seq, 'w', 1, 1, 1, 1, 0, 0, 0, 0 from holdfast_job where seq <= {running};
insert into holdfast_category (category_id, category, partitions) values (1, 'shop', 2);
insert into holdfast_head (category_id, partition_id, position_id) values (1, 0, {fewer}), (1, 1, {fewer});
insert into holdfast_event
    (category_id, partition_id, position_id, stream, version, event_id, event_name, payload, recorded_at)
select 1, 1, seq, concat('s', seq % 10), seq, id, 'n', '[]', 1 from holdfast_job where seq <= {fewer};
insert into holdfast_limit_key (key_id, lane_id, limit_key) select -seq, 1, seq from holdfast_job where seq <= {fewer};
update holdfast_job set limit_key = seq where seq <= {fewer};
insert into holdfast_limit_slot (key_id, seq, attempt) select -seq, seq, 1 from holdfast_job where seq <= {fewer};
insert into holdfast_parent_link (child_seq, place, parent_seq, run_anyway)
select seq, 1, seq - 1, 0 from holdfast_job where seq between 2 and {fewer};
insert into holdfast_parent_change (seq) select seq from holdfast_job where seq <= {fewer};
insert into holdfast_attempt (seq, attempt, fence, by_holder, worker_id, started_at, ended_at, outcome)
select seq, 1, seq, 1, 'w', 1, 1, 'failed' from holdfast_job where seq <= {fewer};
insert into holdfast_failed (seq, attempt, lost, finished_at, reason)
select seq, 1, 0, 1, 'r' from holdfast_job where seq between {running} + 1 and {fewer};
insert into holdfast_cancelled (seq, attempt, lost, finished_at, reason) select seq, 1, 0, 1, 'r' from holdfast_failed;
insert into holdfast_tally (minute_at, lane_id) select seq, 1 from holdfast_job where seq <= {fewer};
insert into holdfast_fence (fence) select seq from holdfast_job where seq <= {fewer};
insert into holdfast_record (kind, name, version, content, touched_at)
select 'k', seq, 1, 'c', seq from holdfast_job where seq <= {fewer};
insert into holdfast_consumer (consumer, category) values ('mail', 'shop');
insert into holdfast_allocation
    (consumer, category_id, partition_id, generation, position_id, since_at, state, owner, incarnation)
values ('mail', 1, 0, 1, 10, 1, 'granted', 'n', 'i'), ('mail', 1, 1, 1, 10, 1, 'granted', 'n', 'i');
insert into holdfast_share_latch (consumer, category, partition_id) values ('mail', 'shop', 0), ('mail', 'shop', 1);
insert into holdfast_parked (consumer, category_id, partition_id, position_id, event_id, stream, parked_at, retrying)
select 'mail', 1, 1, position_id, event_id, stream, 1, position_id > {fewer} - 10 from holdfast_event;
insert into holdfast_transition
    (consumer, category_id, partition_id, epoch, generation, old_state, new_state, happened_at)
select 'mail', 1, 1, 1, 1, 'free', 'granted', 1 from holdfast_job where seq <= {fewer};
insert into holdfast_trimmed_stream (category_id, stream, version)
select 1, concat('t', seq), 1 from holdfast_job where seq <= {fewer};
insert into holdfast_worker (worker_id, heartbeat, started_at, heartbeat_at) values ('w', '', 1, 1);
insert into holdfast_node (node_id, incarnation, host, pid, members, joined_at) values ('n', 'i', 'h', 1, '', 1);
insert into holdfast_node_heartbeat (node_id, heartbeat_at, ttl) values ('n', 1, 1)
"""


def _fill(cursor: Any, rows: int) -> None:
    names = "abcdef"[: len(str(rows)) - 1]
    sums = "1 + " + " + ".join(f"{name}.d * {10**place}" for place, name in enumerate(names))
    numbers = f"(select {sums} as n from {', '.join(f'{DIGITS} as {name}' for name in names)}) as numbers"  # noqa: S608
    cursor.execute("set session sql_mode = ''")  # numbers become texts
    given = {"numbers": numbers, "running": amounts_of(rows).running, "fewer": min(rows, FEWER)}
    for statement in FILL.format(**given).split(";"):
        cursor.execute(statement)


def _size(flavour: str, rows: int, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param((flavour, rows), id=f"{flavour}-{rows}", marks=marks)


SIZES = [
    _size("mariadb", 0),
    _size("mariadb", 1_000),
    _size("mariadb", 10_000),
    _size("mariadb", 1_000_000, pytest.mark.slow, pytest.mark.timeout(300)),
    _size("mysql", 0, pytest.mark.slow),
    _size("mysql", 1_000, pytest.mark.slow),
    _size("mysql", 10_000, pytest.mark.slow),
    _size("mysql", 1_000_000, pytest.mark.torture, pytest.mark.timeout(300)),
]


@pytest.fixture(scope="module")
def filled(request: pytest.FixtureRequest) -> Iterator[tuple[str, Amounts]]:
    """A database with so many ready jobs, with jobs in the other states, and with events."""
    flavour, rows = request.param
    with mysql.own_database(flavour) as own:
        mysql.run(own, open_backend(own).schema.script())
        connection = mysql.connect(own, read_timeout=280)
        if rows:
            with connection.cursor() as cursor:
                _fill(cursor, rows)
        connection.close()
        yield own, amounts_of(rows)


def _session(url: str) -> pymysql.Connection[Any]:
    settings = "set session transaction isolation level read committed"
    return mysql.connect(url, init_command=settings, read_timeout=60)


def _reads(cursor: Any) -> int:
    cursor.execute("show session status like 'Handler_read%'")
    return sum(int(number) for _, number in cursor.fetchall())


def _is_of_rows(name: str) -> bool:
    """Whether a statement finds rows: an insert of given values does not."""
    text = re.sub(r"(?m)^--.*\n", "", TEMPLATES[name])
    return "holdfast_" in text and not re.search(r"\)\s+values\s+\(", text)


def _rows_read(url: str, name: str, amounts: Amounts) -> int:
    """Run a statement and roll it back; return the rows that it has read."""
    connection = _session(url)
    try:
        with connection.cursor() as cursor:
            connection.begin()
            own = _reads(cursor)
            before = _reads(cursor)
            for text in MysqlStatements(None).filled(name, parameters(name, amounts)):
                cursor.execute(text)
                cursor.fetchall()
            read = _reads(cursor) - before - (before - own)
            connection.rollback()
    finally:
        connection.close()
    return read


@pytest.mark.parametrize("filled", SIZES, indirect=True)
def test_no_statement_reads_more_rows_the_more_there_are(filled: tuple[str, Amounts]):
    """Except those that are meant to. Of a small table, too, which planners like to read as a whole."""
    url, amounts = filled
    read = {name: _rows_read(url, name, amounts) for name in TEMPLATES.keys() - WHOLE if _is_of_rows(name)}
    allowed = {name: amounts.bound + (3 * amounts.running if name in LEASES else 0) for name in read}
    assert {name: number for name, number in read.items() if number > allowed[name]} == {}


@pytest.mark.parametrize(
    ("name", "table", "locked"),
    [
        ("lock_front", "ready", "some"),
        ("leave_front_listed", "ready", "some"),
        ("leave_front_range", "ready", 1),
        ("due_jobs", "scheduled", "some"),
        ("held_among", "running", "some"),
        ("lock_leases", "running", "some"),
        ("lock_extendable", "running", "some"),
        ("lock_lease", "running", 1),
        ("leave_range", "running", 1),
        ("lock_expired", "running", "some"),
        ("lock_job", "running", 1),
        ("lock_job", "ready", 0),
        ("lock_completed", "completed", "some"),
        ("prune_completed", "completed", "some"),
        ("lock_order_keys", "key_head", "some"),
        ("first_of_key", "blocked", 1),
        ("lock_completed", "job", 0),
        ("lock_leases", "job", 0),
        ("lock_leases", "lane", 0),
    ],
)
@pytest.mark.parametrize("filled", [size for size in SIZES if size.values[0][1] in {1_000, 10_000}], indirect=True)
def test_a_statement_locks_its_rows_and_no_others(
    filled: tuple[str, Amounts], name: str, table: str, locked: int | str
):
    url, amounts = filled
    holder, other = _session(url), _session(url)
    try:
        holder.begin()
        with holder.cursor() as cursor, other.cursor() as looker:
            looker.execute(f"select count(*) from holdfast_{table}")  # noqa: S608 - our name
            ((whole,),) = looker.fetchall()
            for text in MysqlStatements(None).filled(name, parameters(name, amounts)):
                cursor.execute(text)
                cursor.fetchall()
            other.begin()
            looker.execute(f"select 1 from holdfast_{table} force index (primary) for update skip locked")  # noqa: S608
            assert whole - len(looker.fetchall()) == (amounts.some if locked == "some" else locked)
    finally:
        holder.close()
        other.close()
