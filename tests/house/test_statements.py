"""An audit of the SQL catalogue: what writes under a lease carries the fence, and no statement is dead or missing."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest
from tests.house.sources import PACKAGE, Module, modules

from holdfast.backends.sqlite.statements import STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE = "src/holdfast/backends/sqlite"
SHARED = "src/holdfast/backends/sql"
RUNNERS = {"run", "rows", "row", "value", "many"}

# Statements that change `running` without a fence in them -> the functions that may run them, and what makes it safe.
# The write lock is held for the whole transaction, so that what was found held under its fence is held until the end.
UNFENCED = {
    "extend_many": {"leases.extend_many": "of seqs found held by `held_among`"},
    "drop_running": {
        "running.to_ready": "of a row found by `running.find`",
        "running.to_scheduled": "of a row found by `running.find`",
        "running.to_failed": "of a row found by `running.find`",
        "running.to_cancelled": "of a row found by `running.find`",
    },
    "isolate_no_more": {"rescue._take": "says only whom a later loss is blamed on; the holder keeps it"},
    "ask_to_cancel": {"operate.cancel": "asked by a person, under no lease; the holder keeps it"},
}
# Who may find a running row whatever its fence: those who take leases away, under no lease themselves.
TAKERS = {"rescue._take", "operate.reset"}


def changes_running(sql: str) -> bool:
    return re.search(r"\b(update|delete\s+from)\s+holdfast_running\b", sql, re.IGNORECASE) is not None


def is_fenced(sql: str) -> bool:
    return re.search(r"\bfence\s*=\s*:fence\b", sql) is not None


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    stem = module.path.rpartition("/")[2].removesuffix(".py")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{stem}.{node.name}", node


def named(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the statements that are run by name, with the line; a name put together is yielded as a pattern."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in RUNNERS
            and node.args
        ):
            match node.args[0]:
                case ast.Constant(value=str(name)):
                    yield name, node.lineno
                case ast.JoinedStr(values=parts):
                    yield pattern(parts), node.lineno


def pattern(parts: list[ast.expr]) -> str:
    return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+" for part in parts)


def callers() -> dict[str, set[str]]:
    """Return, for each statement, the functions of the backend that run it."""
    found: dict[str, set[str]] = {}
    for module in modules(SQLITE):
        for function, node in functions(module):
            for name, _ in named(node):
                found.setdefault(name, set()).add(function)
    return found


def body_of(name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    return next(node for module in modules(SQLITE) for function, node in functions(module) if function == name)


def line_of_call(node: ast.AST, called: str) -> int:
    """Return the first line on which a function of this name is called."""
    lines = [
        call.lineno
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == called
    ]
    assert lines, f"{called} is not called"
    return min(lines)


def test_a_statement_that_changes_running_carries_the_fence_or_is_accounted_for():
    unfenced = {name for name, sql in STATEMENTS.items() if changes_running(sql) and not is_fenced(sql)}

    assert unfenced == set(UNFENCED)


@pytest.mark.parametrize(
    "statement",
    ["complete_one", "complete_many", "count_completed", "leave_running", "leave_running_alone", "standing"],
)
def test_every_statement_of_a_completion_carries_the_fence(statement):
    assert is_fenced(STATEMENTS[statement])


@pytest.mark.parametrize("statement", UNFENCED)
def test_a_statement_without_a_fence_is_run_by_the_accounted_functions_only(statement):
    assert callers()[statement] == set(UNFENCED[statement])


def test_a_batch_is_extended_only_of_what_was_found_held_in_the_same_transaction():
    extend = body_of("leases.extend_many")

    assert line_of_call(extend, "held_among") < next(line for name, line in named(extend) if name == "extend_many")
    assert "_encode(list(held))" in ast.unparse(extend)
    assert "lease.fence" in ast.unparse(body_of("leases.held_among"))


def test_a_job_leaves_running_only_after_its_completion_was_written():
    for function, insert, leave in (
        ("finish._complete", "complete_one", "leave_running_alone"),
        ("finish._complete_many", "complete_many", "leave_running"),
    ):
        names = [name for name, _ in named(body_of(function))]
        assert names.index(insert) < names.index(leave)
        assert callers()[leave] == {function}


def test_a_row_is_dropped_only_by_those_who_hold_it_in_their_hands():
    for function in UNFENCED["drop_running"]:
        annotations = [
            ast.unparse(argument.annotation) for argument in body_of(function).args.args if argument.annotation
        ]
        assert "Running" in annotations, function


def test_a_running_row_is_found_by_its_fence_but_for_those_who_take_leases_away():
    takers = set()
    for module in modules(f"{SQLITE}/verbs"):
        for function, node in functions(module):
            for call in ast.walk(node):
                if (
                    isinstance(call, ast.Call)
                    and ast.unparse(call.func) in {"rows.find", "find"}
                    and len(call.args) == 3
                ):
                    if ast.unparse(call.args[2]) == "None":
                        takers.add(function)
                    else:
                        assert ast.unparse(call.args[2]) == "lease.fence", function

    assert takers == TAKERS
    assert {function for module in modules(SQLITE) for function, node in functions(module) if makes_a_row(node)} == {
        "running.find"
    }


def makes_a_row(node: ast.AST) -> bool:
    return any(isinstance(call, ast.Call) and ast.unparse(call.func) == "Running" for call in ast.walk(node))


def test_every_statement_that_is_run_by_name_exists():
    missing = [name for name in callers() if not any(re.fullmatch(name, statement) for statement in STATEMENTS)]

    assert missing == []


def test_every_statement_is_used():
    words = set(callers())
    for module in [*modules(SQLITE), *modules(SHARED)]:
        for node in ast.walk(module.tree):
            match node:
                case ast.Constant(value=str(text)):
                    words.add(re.escape(text))
                case ast.JoinedStr(values=parts):
                    words.add(pattern(parts))
    plain = {word for word in words if r"\w+" not in word}
    patterns = [re.compile(word) for word in words if re.fullmatch(r"[a-z_]+\\w\+", word)]

    unused = [name for name in STATEMENTS if name not in plain and not any(rule.fullmatch(name) for rule in patterns)]
    assert unused == []


def test_no_statement_is_put_together_from_values():
    for path in sorted((PACKAGE / "backends" / "sqlite" / "sql").glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        assert "{" not in text, path
        assert "%s" not in text, path


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("update holdfast_running set note = 1 where seq = :seq", (True, False)),
        ("DELETE FROM holdfast_running where seq = :seq and fence = :fence", (True, True)),
        ("delete from holdfast_ready where seq = :seq", (False, False)),
        ("update holdfast_running set fence = :next where seq = :seq", (True, False)),
    ],
)
def test_the_audit_sees_what_it_looks_for(sql, expected):
    assert (changes_running(sql), is_fenced(sql)) == expected
