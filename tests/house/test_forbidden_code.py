from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest
from tests.house.sources import Finding, Module, docstrings, modules, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Stored bytes are data. None of these may ever turn them into code.
FORBIDDEN_MODULES = {"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}
FORBIDDEN_CALLS = {"compile", "eval", "exec"}

# path -> why it may ask this machine for the time; everywhere else the store's clock decides
CLOCK_READERS = {
    "src/holdfast/backends/sqlite/backend.py": "SQLite has no server: the machine's clock is the store's clock",
    "src/holdfast/model/ids.py": "UUIDv7 begins with the time; nothing but the order of inserts rests on it",
    "src/holdfast/reports/doctor.py": "the doctor compares this machine's clock with the store's",
    "src/holdfast/reports/times.py": "how long ago something was is told for the person who reads it now",
    "src/holdfast/torture/programs/enqueueing.py": "a producer asks for `run_at` by its own clock, as users do",
    "src/holdfast/torture/programs/worker.py": "makes the clock of a worker wrong, on purpose",
}
CLOCK_CALLS = {
    "time.time",
    "time.time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "date.today",
    "datetime.date.today",
}

# path -> why it may hold SQL in Python; everywhere else SQL lives in .sql files
SQL_HOLDERS: dict[str, str] = {}
SQL_TEXT = re.compile(
    r"""\s*(
        (SELECT|INSERT|UPDATE|DELETE|CREATE)\s
      | (?i:select\s.+\sfrom\s | insert\s+(or\s+\w+\s+)?into\s | update\s+\w+\s+set\s | delete\s+from\s)
      | (?i:create\s+(unique\s+|temp\s+|temporary\s+)?(table|index|view|trigger)\s)
    )""",
    re.VERBOSE | re.DOTALL,
)


def dotted(node: ast.AST) -> str:
    """Return `a.b.c` for a chain of names, and nothing for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (inner := dotted(node.value)):
        return f"{inner}.{node.attr}"
    return ""


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of everything that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def code_from_data(module: Module) -> Iterator[Finding]:
    for line, name in imported(module.tree):
        if name.partition(".")[0] in FORBIDDEN_MODULES:
            yield Finding(module.path, line, f"imports {name}")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and dotted(node.func).removeprefix("builtins.") in FORBIDDEN_CALLS:
            yield Finding(module.path, node.lineno, f"calls {dotted(node.func)}")


def clock_reads(module: Module) -> Iterator[Finding]:
    for node in ast.walk(module.tree):
        # A reference is enough: `default_factory=time.time` reads the clock as surely as a call.
        if isinstance(node, ast.Attribute) and dotted(node) in CLOCK_CALLS:
            yield Finding(module.path, node.lineno, f"reads {dotted(node)}")
    for line, name in imported(module.tree):
        if name in CLOCK_CALLS:
            yield Finding(module.path, line, f"imports {name}")


def deaf_waits(module: Module) -> Iterator[Finding]:
    """Before Python 3.12 `wait_for` forgets that it was cancelled if what it waits for has just happened."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and dotted(node) == "asyncio.wait_for":
            yield Finding(module.path, node.lineno, "uses asyncio.wait_for: say `async with asyncio.timeout(…)`")


def sql_in_python(module: Module) -> Iterator[Finding]:
    prose = docstrings(module.tree)
    for node in ast.walk(module.tree):
        match node:
            case ast.Constant(value=str(text)) if node not in prose and SQL_TEXT.match(text):
                yield Finding(module.path, node.lineno, f"holds SQL: {text.strip()[:50]!r}")


def broken(rule: Callable[[Module], Iterator[Finding]], allowed: dict[str, str]) -> list[Finding]:
    return [finding for module in modules("src") if module.path not in allowed for finding in rule(module)]


def test_stored_data_can_never_become_code():
    findings = broken(code_from_data, {})

    assert not findings, report(findings)


def test_only_the_named_modules_read_this_machines_clock():
    findings = broken(clock_reads, CLOCK_READERS)

    assert not findings, report(findings)


def test_no_wait_can_miss_that_it_was_cancelled():
    findings = broken(deaf_waits, {})

    assert not findings, report(findings)


def test_sql_lives_in_sql_files():
    findings = broken(sql_in_python, SQL_HOLDERS)

    assert not findings, report(findings)


@pytest.mark.parametrize(("rule", "allowed"), [(clock_reads, CLOCK_READERS), (sql_in_python, SQL_HOLDERS)])
def test_every_allowance_is_used(rule, allowed):
    unused = [module.path for module in modules("src") if module.path in allowed and not list(rule(module))]

    assert unused == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (code_from_data, "import pickle"),
        (code_from_data, "from yaml import load"),
        (code_from_data, "x = eval('1')"),
        (code_from_data, "import builtins\nbuiltins.exec('1')"),
        (clock_reads, "import time\nnow = time.time()"),
        (clock_reads, "from time import time_ns"),
        (clock_reads, "from datetime import datetime, UTC\nx = datetime.now(UTC)"),
        (clock_reads, "import datetime\nx = datetime.datetime.utcnow"),
        (deaf_waits, "import asyncio\nasync def f(e):\n    await asyncio.wait_for(e.wait(), 1)"),
        (sql_in_python, "x = 'SELECT 1'"),
        (sql_in_python, "def f(t):\n    return f'delete from {t}'"),
        (sql_in_python, "x = '''\n  insert or ignore into t values (1)'''"),
    ],
)
def test_each_rule_sees_what_it_forbids(rule, text):
    assert list(rule(Module("planted.py", text, ast.parse(text))))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (code_from_data, "import re\nx = re.compile('a')"),
        (clock_reads, "import time\nx = time.monotonic()"),
        (deaf_waits, "import asyncio\nasync def f(e):\n    async with asyncio.timeout(1):\n        await e.wait()"),
        (sql_in_python, "def f():\n    'SELECT is explained here'"),
        (sql_in_python, "x = 'update the lease'"),
    ],
)
def test_no_rule_sees_what_is_allowed(rule, text):
    assert not list(rule(Module("planted.py", text, ast.parse(text))))
