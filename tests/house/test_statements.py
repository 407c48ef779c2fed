"""An audit of the SQL catalogues: what writes under a lease carries the fence, and no statement is dead or missing."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest
from tests.house.sources import Module, modules
from tests.torture.mutants.catalogue import MUTANTS
from tests.torture.mutants.patching import Sql
from tests.torture.mutants.streams import STREAM_MUTANTS

from holdfast.backends.mysql.statements import TEMPLATES as ON_MYSQL
from holdfast.backends.postgres.statements import TEMPLATES
from holdfast.backends.sqlite.statements import STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE = "src/holdfast/backends/sqlite"
POSTGRES = "src/holdfast/backends/postgres"
MYSQL = "src/holdfast/backends/mysql"
SHARED = "src/holdfast/backends/sql"
RULES = "src/holdfast/store/verbs"
CATALOGUES = {SQLITE: STATEMENTS, POSTGRES: TEMPLATES, MYSQL: ON_MYSQL}
RUNNERS = {
    "run",
    "rows",
    "row",
    "value",
    "many",
    "each",
    "records",
    "page",
    "act",
    "load",
    "Ask",
    "partial",
    "numbered",
}

# Statements that change `running` without a fence in them, and what makes it safe.
UNFENCED = {
    "leave_running": "of rows that the same transaction has locked, by their fence or to take the lease away",
    "clear_isolation": "only decides whom a later loss is blamed on; the holder keeps its lease",
    "ask_to_cancel": "requested by an operator, under no lease; the holder keeps its lease",
    "follow_running": "by the enqueue of a child, under no lease; the holder keeps its lease",
}
UNFENCED_ON_SQLITE = {"extend_many": "of seqs that `held_among` found held under the write lock"}
UNFENCED_ON_MYSQL = {"extend_many": "of seqs that `lock_extendable` has locked under their fences"}
# The rules that may lock rows whatever their fence: those that take leases away, and an operator's.
TAKERS = {
    "rescue.rescue": "Expired",
    "rescue.rescue_worker": "OfWorker",
    "job_admin._by_id": "ById",
    "job_admin.cancel_all": "ByIds",
    "job_admin.delete": "ByIds",
    "job_admin.retry": "ById",
    "children._follow": "ByIds",
    "children._decide": "WaitingChildren",
    "unique._replace": "Waiting",  # no leases are among them
}


def changes_running(sql: str) -> bool:
    plain = re.search(r"\b(update|delete\s+from)\s+(holdfast_|\{schema\}\.)running\b", sql, re.IGNORECASE)
    joined = re.search(r"(?s)^\s*(delete running from|update \().*straight_join holdfast_running\b", _code(sql))
    return plain is not None or joined is not None


def _code(sql: str) -> str:
    return re.sub(r"(?m)^--.*\n", "", sql)


def is_fenced(sql: str) -> bool:
    return re.search(r"\bfence\s*=\s*(:fence|given\.fence|%\(fence\)s)", sql) is not None


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    stem = module.path.rpartition("/")[2].removesuffix(".py")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{stem}.{node.name}", node


def named(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the statements that are run by name, with the line; a name put together is yielded as a pattern."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in RUNNERS:
            continue
        for argument in node.args[:2]:  # the name comes first, or after the record
            match argument:
                case ast.Constant(value=str(name)):
                    yield name, node.lineno
                case ast.JoinedStr(values=parts):
                    yield pattern(parts), node.lineno


def pattern(parts: list[ast.expr]) -> str:
    return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+" for part in parts)


def callers(*folders: str) -> dict[str, set[str]]:
    """Return, for each statement, the functions that run it."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        for module in modules(folder):
            for function, node in functions(module):
                for name, _ in named(node):
                    found.setdefault(name, set()).add(function)
    return found


def body_of(folder: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    return next(node for module in modules(folder) for function, node in functions(module) if function == name)


def line_of_call(node: ast.AST, called: str) -> int:
    """Return the first line on which a function of this name is called."""
    lines = [
        call.lineno
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == called
    ]
    assert lines, f"{called} is not called"
    return min(lines)


@pytest.mark.parametrize(
    ("store", "accounted"),
    [(SQLITE, UNFENCED | UNFENCED_ON_SQLITE), (POSTGRES, UNFENCED), (MYSQL, UNFENCED | UNFENCED_ON_MYSQL)],
    ids=["sqlite", "postgres", "mysql"],
)
def test_a_statement_that_changes_running_carries_the_fence_or_is_accounted_for(store, accounted):
    unfenced = {name for name, sql in CATALOGUES[store].items() if changes_running(sql) and not is_fenced(sql)}

    assert unfenced == set(accounted)


@pytest.mark.parametrize(
    "statement",
    ["complete_one", "complete_many", "count_completed", "leave_completed", "lock_lease"],
)
def test_every_statement_of_a_completion_carries_the_fence(statement):
    assert is_fenced(STATEMENTS[statement])


def test_a_batch_is_extended_only_of_what_was_found_held_in_the_same_transaction():
    extend = body_of(f"{SQLITE}/verbs", "extend.extend_many")

    assert line_of_call(extend, "held_among") < next(line for name, line in named(extend) if name == "extend_many")
    assert "as_json(list(held))" in ast.unparse(extend)
    assert "lease.fence" in ast.unparse(body_of(f"{SQLITE}/verbs", "extend.held_among"))


def test_a_job_leaves_running_only_after_its_completion_was_written():
    lines = [(line, name) for name, line in named(body_of(f"{SQLITE}/verbs", "finish._complete"))]
    leaves = min(line for line, name in lines if name == "leave_completed")

    assert {name for line, name in lines if line < leaves} >= {"complete_one", "complete_many"}
    assert callers(SQLITE)["leave_completed"] == {"finish._complete"}


def test_rows_leave_their_state_only_where_changes_of_locked_rows_are_written():
    runs = callers(SQLITE, POSTGRES, MYSQL, SHARED)
    leaving = {name: functions for name, functions in runs.items() if name.startswith("leave_")}
    own = {"leave_front", "leave_completed"}  # hot paths of SQLite
    own |= {"leave_front_range", "leave_front_listed", "leave_range", "leave_listed", "leave_held"}  # and of MySQL

    assert {name: functions for name, functions in leaving.items() if name not in own} == {
        "leave_blocked": {"order_keys.make_heads", "limit_keys._admit_first"},
        "leave_ready": {"limit_keys._send_back"},
        "leave_scheduled": {"job_rows.promote", "limit_keys.admit_due"},
    }
    assert re.search(r"leave_\{old\.state\}", ast.unparse(body_of(SHARED, "job_writes.write_changes")))


def test_the_rules_change_only_rows_that_they_have_locked():
    """A rule writes in a function that locks before, or is passed the rows by one that does."""
    for module in modules(RULES):
        for function, node in functions(module):
            text = ast.unparse(node)
            if ".write(" in text and "rows.write(0, [], " not in text and function != "rescue._take":
                assert line_of_call(node, "lock") < line_of_call(node, "write"), function
    takes = {name for name, node in _rules() if "_take(" in ast.unparse(node) and name != "rescue._take"}
    assert takes == {"rescue.rescue", "rescue.rescue_worker"}
    for name in takes:
        node = body_of(RULES, name)
        assert line_of_call(node, "lock") < line_of_call(node, "_take")


def test_a_row_is_locked_by_its_fence_but_by_the_rules_that_take_leases_away():
    selections: dict[str, str] = {}
    for name, node in _rules():
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "rows.lock":
                selection = ast.unparse(call.args[0]).partition("(")[0]
                if selection != "ByLeases":
                    selections[name] = selection

    assert selections == TAKERS
    assert is_fenced(TEMPLATES["lock_leases"])
    assert "(row.seq, row.fence) in wanted" in ast.unparse(body_of(SHARED, "job_rows.lock"))


def _rules() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module in modules(RULES):
        yield from functions(module)


@pytest.mark.parametrize("store", CATALOGUES, ids=["sqlite", "postgres", "mysql"])
def test_every_statement_that_is_run_by_name_exists(store):
    runs = callers(store, SHARED, RULES)
    missing = [name for name in runs if not any(re.fullmatch(name, statement) for statement in CATALOGUES[store])]

    # One statement each on PostgreSQL: `bring_up`, `promote`, `fetch`.
    only_shared = {"first_blocked", "set_head", "drop_order_key", "due_jobs", "find_head", "list_retries"}
    expected = {SQLITE: set(), POSTGRES: only_shared, MYSQL: {"first_blocked"}}  # on MySQL one for each key
    assert set(missing) == expected[store]


@pytest.mark.parametrize("store", CATALOGUES, ids=["sqlite", "postgres", "mysql"])
def test_every_statement_is_used(store):
    words = set(callers(store, SHARED, RULES))
    for folder in (store, SHARED, "src/holdfast/store"):
        for module in modules(folder):
            for node in ast.walk(module.tree):
                match node:
                    case ast.Constant(value=str(text)):
                        words.add(re.escape(text))
                    case ast.JoinedStr(values=parts):
                        words.add(pattern(parts))
    plain = {word for word in words if r"\w+" not in word}
    patterns = [re.compile(word) for word in words if re.fullmatch(r"[a-z_]+\\w\+", word)]

    unused = [
        name for name in CATALOGUES[store] if name not in plain and not any(rule.fullmatch(name) for rule in patterns)
    ]
    assert unused == []


def only_listed(*folders: str) -> set[str]:
    """Return the statements that only lists read: rules that ask the rows of jobs for nothing but pages."""
    lists = {
        function
        for function, node in _rules()
        if {match.group() for match in re.finditer(r"\brows\.\w+", ast.unparse(node))} == {"rows.page"}
    }
    return {name for name, functions in callers(*folders, SHARED, RULES).items() if functions <= lists}


@pytest.mark.parametrize(("store", "folder"), [("sqlite", SQLITE), ("postgresql", POSTGRES)])
def test_no_mutant_replaces_a_statement_that_only_lists_read(store, folder):
    """Such a mutant finds its text and changes nothing of the work, which uses another statement."""
    patches = [patch for mutant in [*MUTANTS.values(), *STREAM_MUTANTS.values()] for patch in mutant.patches]
    replaced = {patch.name for patch in patches if isinstance(patch, Sql) and patch.store == store}

    assert replaced
    assert [name for name in replaced if any(re.fullmatch(listed, name) for listed in only_listed(folder))] == []


def test_a_statement_of_a_list_is_distinguished_from_one_of_the_work():
    assert {"limits", "leases"} <= only_listed(SQLITE)
    assert "limits" not in only_listed(MYSQL)  # claims read it, too
    assert not {"claimable_lanes", "unsettled_children", "unique_among"} & only_listed(SQLITE)


def test_no_statement_is_put_together_from_values():
    for name, text in STATEMENTS.items():
        assert "{" not in text, name
        assert "%s" not in text, name
    for name, text in TEMPLATES.items():
        assert "%s" not in text, name


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("update holdfast_running set note = 1 where seq = :seq", (True, False)),
        ("DELETE FROM holdfast_running where seq = :seq and fence = :fence", (True, True)),
        ("delete from {schema}.running where seq = %(seq)s and fence = %(fence)s", (True, True)),
        ("delete from holdfast_ready where seq = :seq", (False, False)),
        ("update holdfast_running set fence = :next where seq = :seq", (True, False)),
    ],
)
def test_the_audit_sees_what_it_looks_for(sql, expected):
    assert (changes_running(sql), is_fenced(sql)) == expected


def test_only_the_verbs_of_schedules_run_their_statements():
    """A job without a schedule pays nothing for schedules: no verb of jobs reads or writes their table."""
    runs = callers(SQLITE, POSTGRES, MYSQL, SHARED)
    touching = {name for name, sql in STATEMENTS.items() if re.search(r"\bholdfast_schedule\b", sql)}

    assert len(touching) == 8
    assert {function.partition(".")[0] for name in touching for function in runs.get(name, ())} == {"schedule_rows"}
