"""The SQL dialects have the same statements, with the same parameters.

So the shared code of `backends/sql` runs on each of them. Most statements are shared: a new dialect follows by
translating their spelling, by writing a text of its own where its planner needs one, and by its hot paths.
`tests/postgres/test_dialects.py` compares the columns on real servers.
"""

from __future__ import annotations

import ast
import re
from importlib.resources import files

import pytest
from tests.house.sources import modules

from holdfast.backends.mysql.statements import TEMPLATES as ON_MYSQL
from holdfast.backends.mysql.statements import _spelled as spelled_for_mysql
from holdfast.backends.postgres.statements import TEMPLATES
from holdfast.backends.postgres.statements import _spelled as spelled_for_postgres
from holdfast.backends.sql.files import SHARED, own_statements
from holdfast.backends.sqlite.statements import STATEMENTS
from holdfast.backends.sqlite.statements import _spelled as spelled_for_sqlite

DIALECTS = {
    "sqlite": ("holdfast.backends.sqlite", spelled_for_sqlite),
    "postgres": ("holdfast.backends.postgres", spelled_for_postgres),
    "mysql": ("holdfast.backends.mysql", spelled_for_mysql),
}
# What one dialect has alone, and why.
ONLY_SQLITE = {
    "enqueue: bodies first, from which the other tables are filled": """
        take_seqs find_lane add_lane add_queue known_seq insert_job new_to_ready new_to_scheduled add_order_keys
        new_to_blocked new_to_waiting new_limited vacant_order_keys""",
    "claim: by range": """
        claimable_lanes running_of_queue running_of_task front_places take_fence front_of_lane
        front_of_lane_by_row lease_front leave_front""",
    "complete: by lots": "complete_many held_under complete_one count_completed leave_completed",
    "promote: PostgreSQL takes one statement": "due_jobs",
    "extend: in two statements": "held cancel_asked_among",
    "unique keys, in many statements": "add_unique_key add_free_key",
    "what PostgreSQL does in `bring_up`": "first_blocked set_head drop_order_key",
    "append and fetch, under the write lock": "find_category find_head version_of_stream add_event list_retries",
}
ONLY_POSTGRES = {
    "enqueue: in one statement or by COPY": """
        add_lanes enqueue enqueue_one reserve_seqs copy_jobs copy_ready copy_scheduled take_order_keys enqueue_ordered
        set_heads drop_order_keys""",
    "unique keys, in one statement": "add_unique_keys enqueue_unique enqueue_unique_one",
    "claim: under the locks of limits": "lock_queue_limits lock_task_limits lane_fronts claim_shares",
    "hot: one statement": "claim complete promote due_limited bring_up fetch",
    "the end of a handler's transaction, sent with its COMMIT": """
        complete_or_fail complete_all_or_fail complete_claimed_or_fail plan_by_index commit_position_or_fail""",
    "append: in two statements or by COPY": """
        lock_heads append_events append_event heads_and_clock stream_versions copy_events""",
    "the leases of a batch from one claim": "lock_claimed",
    "rows that a silent client has locked": """
        holders_of_leases holders_of_shares end_holders end_stuck_sessions session_number wait_for_running
        wait_for_order_key wait_for_limit_key wait_at_most locked_leases locked_order_keys locked_limit_keys free_shares
        locked_nodes locked_consumers""",
    "minute counts are appended, and added up later": "fold_counts",
    "completed jobs are indexed by batch": "detach_completed",
    "a server, its schema and a caller's connection": """
        server_facts has_schema migration_lock identify""",
}
# Hot paths that have the same name in both, and nothing else in common.
OWN = {"extend_many": "SQLite extends jobs that were found `held`"}
# Parameters that one dialect needs in addition, and why.
MORE_PARAMETERS = {  # PostgreSQL: the server ends a transaction whose client stops answering
    "lock_batch": {"milliseconds"},
    "lock_lease": {"milliseconds"},
    "lock_share": {"milliseconds"},
}
# Hot paths of MySQL that have the name of another dialect's, and nothing else in common: enqueue, claim, complete,
# extend, and the statements that are run row by row there.
OWN_ON_MYSQL = {
    *("extend_many", "new_to_ready", "new_to_scheduled", "add_event", "take_fence", "count_completed"),
    *("lock_queue_limits", "find_lanes", "list_ready"),  # ready jobs are listed lane by lane
    "migration_lock",  # its wait is bounded by an argument, not by a setting of the session
}
BOUND = {"now", "priority_step"}  # by the executor of each dialect
COMMON = sorted((STATEMENTS.keys() & TEMPLATES.keys()) - OWN.keys())


def listed(accounted: dict[str, str]) -> set[str]:
    return {name for names in accounted.values() for name in names.split()}


def without_comments(sql: str) -> str:
    return re.sub(r"(?m)--.*$", "", sql)


def parameters(sql: str) -> set[str]:
    found = re.findall(r"%\((\w+)\)s|(?<![:\w]):([a-z]\w*)", without_comments(sql))
    return {name for pair in found for name in pair if name} - BOUND


def asked() -> set[str]:
    """Return the statements that functions of shared modules name."""
    words = {
        node.value
        for module in modules("src/holdfast/backends/sql")
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return words & (STATEMENTS.keys() | TEMPLATES.keys())


def test_the_dialects_have_the_same_statements_but_for_their_own_hot_paths():
    assert STATEMENTS.keys() - TEMPLATES.keys() == listed(ONLY_SQLITE)
    assert TEMPLATES.keys() - STATEMENTS.keys() == listed(ONLY_POSTGRES)


def test_every_dialect_has_the_statements_of_the_shared_verbs():
    # `bring_up`, `promote`, `fetch`
    one_on_postgres = {"first_blocked", "set_head", "drop_order_key", "due_jobs", "find_head", "list_retries"}

    assert len(asked()) > 80
    assert asked() - STATEMENTS.keys() == set()
    assert asked() - TEMPLATES.keys() == one_on_postgres
    assert asked() - ON_MYSQL.keys() == {"first_blocked"}  # `first_of_key`, for each key


@pytest.mark.parametrize("name", COMMON)
def test_a_statement_has_the_same_parameters_in_each_dialect(name):
    assert parameters(STATEMENTS[name]) | MORE_PARAMETERS.get(name, set()) == parameters(TEMPLATES[name])


@pytest.mark.parametrize("name", sorted(ON_MYSQL.keys() & (TEMPLATES.keys() | STATEMENTS.keys()) - OWN_ON_MYSQL))
def test_a_statement_has_the_same_parameters_on_mysql(name):
    other = TEMPLATES.get(name) or STATEMENTS[name]
    assert parameters(ON_MYSQL[name]) == parameters(other)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_has_no_text_of_its_own_that_is_the_shared_one(dialect):
    package, spelled = DIALECTS[dialect]
    own, shared = own_statements(package), own_statements(SHARED)

    same = [name for name in own.keys() & shared.keys() if plain(own[name]) == plain(spelled(shared[name]))]
    assert same == []


def plain(sql: str) -> list[str]:
    return without_comments(sql).split()


@pytest.mark.parametrize("name", sorted(own_statements(SHARED)))
def test_a_shared_statement_is_translated_as_a_whole(name):
    text = without_comments(own_statements(SHARED)[name])

    assert set(re.findall(r"\{.*?\}", text)) <= {"{schema}", "{now}", "{priority_step}"}
    assert "%(" not in text
    assert not re.search(r"\{|::|\bany\(|\blateral\b|\bgreatest\b|\bfor (no|key|update|share)\b", STATEMENTS[name])
    assert not re.search(r"(?<![:\w]):\w", TEMPLATES[name])


@pytest.mark.parametrize("statements", [STATEMENTS, TEMPLATES, ON_MYSQL], ids=["sqlite", "postgres", "mysql"])
def test_no_statement_has_a_safety_constant_in_it(statements):
    """Half a lease, a quarter of a lease, a day: `model.lease_rules` and `model.allocation` pass them as parameters."""
    factor = re.compile(r"\b(?!10+\b|1048576)\d+ \*|[*/] (?!10+\b|1048576)\d+\b")  # these change units
    found = {name for name, sql in statements.items() if factor.search(without_comments(sql))}
    assert found <= {"position_at", "version_at"}  # which halve a range of positions


def test_the_comparison_sees_what_it_looks_for():
    assert parameters("select :a, b::text, ':x' -- :c\n") >= {"a"}
    assert parameters("select %(a)s::bigint, %(b)s") == {"a", "b"}
    assert len(COMMON) > 140


@pytest.mark.parametrize(
    ("shared", "sqlite", "postgres"),
    [
        ("select id::text from {schema}.job", "select id from holdfast_job", "select id::text from {schema}.job"),
        (":a::double precision % 2", ":a % 2", "%(a)s::double precision %% 2"),
        ("x = any(:a::text[])", "x in (select value from json_each(:a))", "x = any(%(a)s::text[])"),
        (
            "x = any(array(select unnest(:a::bigint[])))",
            "x in (select value from json_each(:a))",
            "x = any(array(select unnest(%(a)s::bigint[])))",
        ),
        ("order by x for no key update", "order by x", "order by x for no key update"),
        ("a join b on true left join c", "a cross join b on true left join c", "a join b on true left join c"),
        ("greatest(a, {now})", "max(a, :now)", "greatest(a, {now})"),
        (
            "cross join lateral (select id::text from {schema}.job where seq = a.seq limit 1) as job",
            "cross join holdfast_job as job on job.seq = a.seq",
            "cross join lateral (select id::text from {schema}.job where seq = a.seq limit 1) as job",
        ),
        (
            "left join lateral (\n    select * from {schema}.t where b.x and y = b.y for update\n) as t on true",
            "left join holdfast_t as t on b.x and t.y = b.y",
            "left join lateral (\n    select * from {schema}.t where b.x and y = b.y for update\n) as t on true",
        ),
    ],
)
def test_each_dialect_spells_a_shared_statement_in_its_way(shared, sqlite, postgres):
    assert (spelled_for_sqlite(shared), spelled_for_postgres(shared)) == (sqlite, postgres)


def test_every_dialect_has_the_same_migrations_numbered_without_a_gap():
    names = {
        dialect: sorted(path.name for path in files(package).joinpath("migrations").iterdir() if path.name[0].isdigit())
        for dialect, (package, _) in DIALECTS.items()
    }
    begun_later = names.pop("mysql")  # one file with the tables of the version at which it began
    first, *others = names.values()
    assert [int(name.partition("_")[0]) for name in first] == list(range(1, len(first) + 1))
    assert all(other == first for other in others)
    assert begun_later[0].endswith("_initial.sql")
    assert [int(name[:4]) for name in begun_later] == list(range(int(begun_later[0][:4]), len(first) + 1))
