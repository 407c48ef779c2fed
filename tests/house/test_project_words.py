"""One word per concept: identifiers and prose use the terms of `docs/reference/glossary.md`, and not their doubles."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.house.sources import PACKAGE, ROOT, Finding, Module, modules, report, sql_files

if TYPE_CHECKING:
    from collections.abc import Iterator

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"

# Words of other systems -> our term. Forbidden as parts of names, in Python and in SQL.
SYNONYMS = {
    "dequeue": "claim",
    "fencing_token": "fence",
    "lease_token": "fence",
    "renew": "extend",
    "visibility_timeout": "lease",
}

# Doubles of our own terms -> the term. Forbidden as parts of new names, and as words in prose (docstrings, comments,
# messages). A blank stands for any white space or an underscore.
DOUBLES = {
    "hint": "notification",
    "hints": "notification",
    "nudge": "notify",
    "give back": "release",
    "gives back": "release",
    "given back": "release",
    "gave back": "release",
    "let go": "release",
    "beat": "heartbeat",
    "beats": "heartbeat",
    "custody": "lease",
    "tries": "attempt",
    "tried": "attempt",
    "allot": "allocate",
    "allots": "allocate",
    "allotted": "allocate",
    "allotment": "share",
    "rebalance": "allocate",
    "ack": "outcome, finish",
    "adapter": "backend",
    "batch job": "operation",
    "campaign": "operation",
    "concurrency key": "limit_key",
    "cron job": "schedule",
    "dead-letter": "park",
    "dedup key": "unique_key",
    "entrypoint": "task",
    "interceptor": "middleware",
    "periodic task": "schedule",
    "purge": "prune",
    "rank": "turn",
    "result status": "outcome",
    "run out": "expire",
    "semaphore": "limit_key",
    "side effect": "effect",
    "subscriber": "observer, consumer",
    "tube": "queue",
    "unsure": "outcome unknown",
    "witness": "failure detector",
}

# Words of the glossary's last column that are allowed, because they also mean something else in this code.
WITH_OTHER_MEANINGS = {
    "actor": "what acts in a simulation",
    "assignment": "of partitions, by Kafka",
    "broker": "of a node, and of Kafka",
    "callback": "a function that another system calls",
    "channel": "of PostgreSQL's notifications",
    "checkpoint": "of a database's log",
    "client": "of a server",
    "cursor": "where the next page of a list begins",
    "document": "the OpenAPI document",
    "engine": "of another system",
    "event": "of asyncio and threading, and one record of a stream",
    "fetch": "read events",
    "free": "said of a share, a slot or memory",
    "group": "of Kafka's consumers, and of processes",
    "hold": "own",
    "line": "of a text",
    "listener": "of notifications, and of connections",
    "lock": "of a row or a thread",
    "manager": "a context manager",
    "member": "of a consumer, and of a set of Redis",
    "message": "of an error, and between processes",
    "offset": "Kafka's position",
    "reap": "child processes",
    "report": "of a command",
    "shard": "of a Redis cluster",
    "signal": "of the operating system",
    "status": "of HTTP, and of a process",
    "sweep": "look through a buffer",
    "take": "rows, arguments, time",
    "topic": "of Kafka",
    "trigger": "of a database",
    "try": "the statement, and 'try again'",
    "work": "what a function or a process does",
    "wrapper": "around an object",
}

# Words that describe people instead of mechanisms, or that are not idiomatic English -> what to write instead.
DIALECT = {
    "somebody": "name the component",
    "nobody": "name the component",
    "whoever": "name the component",
    "anybody": "name the component",
    "everybody": "name the component",
    "told": "reported, notified",
    "tell": "report, notify, return",
    "tells": "reports, notifies, shows",
    "in vain": "without effect",
    "upkeep": "maintenance",
    "anew": "again",
    "of one's own": "separate",
    "for ever": "forever",
    "lest": "otherwise",
    "in hand": "current",
    "unheard": "whose reply was lost",
    "hear": "receive",
    "hears": "receives",
    "heard": "received",
    "guilty": "name the cause",
    "innocent": "name the cause",
    "without a word": "without a message",
}
BANNED = DOUBLES | DIALECT

# These quote words of older versions and of other queues.
QUOTING = {"src/holdfast/runtime/unknown_settings.py", "src/holdfast/cli/celery_remedies.py"}

# Terms of Python, of its libraries, and the system user of that name.
_OF_OTHERS = re.compile(r"get_type_hints|param_hint|type[ _]hints?|^nobody$")


def phrase(word: str) -> str:
    """Return the pattern of a word; "give back" is also seen in "give the job back"."""
    return word.replace(" ", r"\s+(?:\w+\s+){0,3}") if word.endswith(" back") else word


_PATTERNS = {word: re.compile(r"\b" + phrase(word).replace(" ", r"\s+") + r"\b", re.IGNORECASE) for word in BANNED}


def identifiers(module: Module) -> Iterator[tuple[int, str]]:
    """Yield every name that the module binds or uses, with its line."""
    for node in ast.walk(module.tree):
        match node:
            case (
                ast.Name(id=name, lineno=line) | ast.Attribute(attr=name, lineno=line) | ast.arg(arg=name, lineno=line)
            ):
                yield line, name
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.keyword(arg=str(name), lineno=line):
                yield line, name
            case ast.alias(name=name, lineno=line):
                yield line, name


def bound_names(module: Module) -> Iterator[tuple[int, str]]:
    """Yield every name that the module itself introduces, its own included: names of others are not its choice."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store(), lineno=line) | ast.arg(arg=name, lineno=line):
                yield line, name
            case ast.Attribute(attr=name, ctx=ast.Store(), lineno=line):
                yield line, name
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.alias(asname=str(name), lineno=line):
                yield line, name
    yield 1, Path(module.path).stem


def prose(module: Module) -> Iterator[tuple[int, str]]:
    """Yield every string literal, docstrings included, and every comment, with its line."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for number, line in enumerate(node.value.splitlines()):
                yield node.lineno + number, line


def snake(identifier: str) -> str:
    """Return an identifier in snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().replace(".", "_")


def synonym_in(identifier: str) -> str | None:
    """Return the forbidden synonym inside an identifier, whether snake_case or CamelCase."""
    for synonym in SYNONYMS:
        if re.search(rf"(^|_){synonym}(s|d|ed|al|ing)?(_|$)", snake(identifier)):
            return synonym
    return None


def banned_name(identifier: str) -> str | None:
    """Return the banned word inside an identifier."""
    parts = f"_{_OF_OTHERS.sub('', snake(identifier))}_"
    return next((word for word in BANNED if f"_{re.sub('[ -]', '_', word)}_" in parts), None)


def banned_in_prose(text: str) -> str | None:
    """Return the banned word or phrase inside a line of prose; names in backquotes are not prose."""
    plain = _OF_OTHERS.sub("", re.sub(r"`[^`]*`", "", text))
    return next((word for word, pattern in _PATTERNS.items() if pattern.search(plain)), None)


def banned_in_text(text: str) -> str | None:
    """Return the banned word inside a line of a source that is not Python, in its prose or its names."""
    in_names = (banned_name(name) for name in re.findall(r"[A-Za-z_]\w*", text))
    return banned_in_prose(text) or next((word for word in in_names if word), None)


def other_sources() -> list[Path]:
    """Return the package's sources that are not Python, but for migrations: those keep the names of their time."""
    suffixes = {".sql", ".lua", ".html", ".js", ".css", ".svg"}
    return [file for file in sorted(PACKAGE.rglob("*")) if file.suffix in suffixes and file.parent.name != "migrations"]


def dialect(module: Module) -> list[Finding]:
    """Return the banned words of a module, in the names that it introduces and in its prose."""
    in_names = (
        Finding(module.path, line, f"{name}: write {BANNED[word]!r} for {word!r}")
        for line, name in bound_names(module)
        if (word := banned_name(name))
    )
    in_prose = (
        Finding(module.path, line, f"write {BANNED[word]!r} for {word!r}: {text.strip()[:80]}")
        for line, text in prose(module)
        if module.path not in QUOTING and (word := banned_in_prose(text))
    )
    return [*in_names, *in_prose]


def test_python_names_use_our_words():
    findings = [
        Finding(module.path, line, f"{name}: we say {SYNONYMS[synonym]!r}")
        for module in modules("src")
        for line, name in identifiers(module)
        if (synonym := synonym_in(name))
    ]

    assert not findings, report(findings)


def test_sql_names_use_our_words():
    findings = [
        Finding(file.relative_to(ROOT).as_posix(), number, f"{name}: we say {SYNONYMS[synonym]!r}")
        for file in sql_files()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        for name in re.findall(r"[A-Za-z_]\w*", line.partition("--")[0])
        if (synonym := synonym_in(name))
    ]

    assert not findings, report(findings)


def test_names_and_prose_use_the_terms_of_the_glossary():
    findings = [finding for module in modules("src") for finding in dialect(module)]

    assert not findings, report(findings)


def test_other_sources_use_the_terms_of_the_glossary():
    findings = [
        Finding(file.relative_to(ROOT).as_posix(), number, f"write {BANNED[word]!r} for {word!r}: {text.strip()[:80]}")
        for file in other_sources()
        for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if (word := banned_in_text(text))
    ]

    assert not findings, report(findings)


def test_statements_scripts_and_pages_are_among_the_other_sources():
    assert {".sql", ".lua", ".html", ".js", ".css"} <= {file.suffix for file in other_sources()}


def avoided_words() -> set[str]:
    """Return the words in the last column of the glossary's tables."""
    rows = [line.split("|")[1:-1] for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return {word.strip(" *`") for row in rows for word in row[-1].split(",")} - {"", "not", "---"}


def test_every_word_that_the_glossary_avoids_is_forbidden_or_has_another_meaning():
    forbidden = {word.replace("_", " ") for word in [*SYNONYMS, *BANNED]}

    assert forbidden | WITH_OTHER_MEANINGS.keys() == avoided_words()
    assert not forbidden & WITH_OTHER_MEANINGS.keys()


def test_the_name_of_a_file_and_of_an_import_are_names():
    text = "from holdfast.cli import suggested_commands as hints"
    module = Module("src/holdfast/cli/hints.py", text, ast.parse(text))

    assert [finding.line for finding in dialect(module)] == [1, 1]


@pytest.mark.parametrize("text", ["renew", "renew_all", "LeaseRenewal", "job_dequeued", "fencing_token", "dequeues"])
def test_a_synonym_is_seen_inside_a_longer_name(text):
    assert synonym_in(text)


@pytest.mark.parametrize("text", ["extend", "fence", "renown", "lease", "enqueue", "token"])
def test_our_own_words_pass(text):
    assert synonym_in(text) is None


@pytest.mark.parametrize("name", ["take_hint", "_custody", "BeatSender", "was_told", "give_back_all", "nudge"])
def test_a_double_is_seen_inside_a_longer_name(name):
    assert banned_name(name)


@pytest.mark.parametrize(
    "name", ["get_type_hints", "heartbeat", "toldest", "wanted", "entries", "countries", "retries"]
)
def test_similar_names_pass(name):
    assert banned_name(name) is None


@pytest.mark.parametrize(
    "text",
    [
        "Nobody has heard of it.",
        "# gave  back 3 jobs",
        "Give the job back: it runs again.",
        "the worker is told",
        "a hint of work",
        "of one's own",
    ],
)
def test_a_double_is_seen_in_prose(text):
    assert banned_in_prose(text)


@pytest.mark.parametrize("text", ["{% set beat = row.view %}", "-- nobody has locked it", "local give_back = 1"])
def test_a_double_is_seen_in_other_sources(text):
    assert banned_in_text(text)


@pytest.mark.parametrize("text", ["send a heartbeat", "`beat` is a field", "type hints are resolved", "an old job"])
def test_similar_prose_passes(text):
    assert banned_in_prose(text) is None
