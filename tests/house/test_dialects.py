"""The SQL dialects have the same statements for jobs: the same names and the same parameters.

So the shared code of `backends/sql` runs on each of them, and a new dialect follows by writing its `.sql` files and its
hot paths. `tests/postgres/test_dialect_columns.py` compares the columns on real servers.
"""

from __future__ import annotations

import re

import pytest
from tests.house.sources import PACKAGE

from holdfast.backends.postgres.statements import TEMPLATES
from holdfast.backends.sqlite.statements import STATEMENTS

# The files with the statements of jobs that the shared code runs.
SHARED_FILES = ("job_rows", "job_lists", "leases", "order_keys", "upkeep")

# What one dialect has alone in these files, and why.
ONLY_SQLITE = {
    "clock": "to compare the host's clock with the monotonic one",
    "held": "hot: a batch is extended by two statements",
    "cancel_asked_among": "hot: as `held`",
    "add_order_keys": "enqueue adds keys in its own way",
    "new_to_blocked": "enqueue adds keys in its own way",
    "vacant_order_keys": "enqueue adds keys in its own way",
    "first_blocked": "PostgreSQL does it in `bring_up`",
    "set_head": "PostgreSQL does it in `bring_up`",
    "drop_order_key": "PostgreSQL does it in `bring_up`",
    "schema_table": "the schema of a file",
}
ONLY_POSTGRES = {
    "bring_up": "hot: the shared code takes five statements",
    "take_order_keys": "enqueue locks keys in bulk",
    "enqueue_ordered": "enqueue inserts in bulk",
    "set_heads": "enqueue adds keys in bulk",
    "drop_order_keys": "enqueue adds keys in bulk",
    "promote": "hot: one statement; SQLite takes three of its own",
    "fold_counts": "minute counts are appended, and added up later",
    "server_facts": "facts of a server",
    "has_schema": "the schema of a server",
    "has_meta_table": "the schema of a server",
    "migration_lock": "several may migrate a server at once",
}
# Hot paths that have the same name in both, and nothing else in common.
OWN = {"extend_many": "SQLite extends jobs that were found `held`"}
# Parameters that one dialect needs in addition, and why.
MORE_PARAMETERS = {
    "lock_lease": {"milliseconds"},  # PostgreSQL: the server ends a transaction whose client stops answering
}
BOUND = {"now", "priority_step"}  # by the executor of each dialect


def names(store: str) -> set[str]:
    found: set[str] = set()
    for file in SHARED_FILES:
        text = (PACKAGE / "backends" / store / "sql" / f"{file}.sql").read_text(encoding="utf-8")
        found |= set(re.findall(r"(?m)^-- name: (\w+)$", text))
    return found


def parameters(sql: str) -> set[str]:
    bare = re.sub(r"(?m)--.*$", "", sql)
    found = re.findall(r"%\((\w+)\)s|(?<![:\w]):([a-z]\w*)", bare)
    return {name for pair in found for name in pair if name} - BOUND


COMMON = sorted((names("sqlite") & names("postgres")) - set(OWN))


def test_the_dialects_have_the_same_statements_but_for_their_own_hot_paths():
    assert names("sqlite") - names("postgres") == set(ONLY_SQLITE)
    assert names("postgres") - names("sqlite") == set(ONLY_POSTGRES)


@pytest.mark.parametrize("name", COMMON)
def test_a_statement_has_the_same_parameters_in_each_dialect(name):
    assert parameters(STATEMENTS[name]) | MORE_PARAMETERS.get(name, set()) == parameters(TEMPLATES[name])


def test_no_statement_of_jobs_has_a_safety_constant_in_it():
    """Half a lease, a quarter of a lease, a day: `model.lease_rules` passes them as parameters."""
    for name in COMMON:
        for sql in (STATEMENTS[name], TEMPLATES[name]):
            assert not re.search(r"\b[24] \*|\* [24]\b", re.sub(r"(?m)--.*$", "", sql)), name


def test_the_comparison_sees_what_it_looks_for():
    assert parameters("select :a, b::text, ':x' -- :c\n") >= {"a"}
    assert parameters("select %(a)s::bigint, %(b)s") == {"a", "b"}
    assert len(COMMON) > 50
