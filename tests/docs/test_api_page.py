"""The page of the Python API names every public method, none that is not there, and no parameter that is not taken."""

from __future__ import annotations

import inspect
import re
from inspect import Parameter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
import holdfast.hooks
from holdfast import (
    App,
    Batch,
    BatchContext,
    Call,
    ClaimedJob,
    Context,
    EventContext,
    JobHandle,
    Node,
    TaskHandle,
    Worker,
)
from holdfast.app.admin import Jobs, Queues
from holdfast.app.audit import Audit
from holdfast.app.consumers import ConsumerDesk
from holdfast.app.delegate import Delegated
from holdfast.app.observing import Observing
from holdfast.app.operations import Operations
from holdfast.app.schedules import Schedules
from holdfast.app.task_admin import TasksOfApp
from holdfast.app.tokens import Tokens
from holdfast.model import allocation, job
from holdfast.store import stream_values, values
from holdfast.worker import decision

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
CLASSES: dict[str, type] = {
    "App": App,
    "TaskHandle": TaskHandle,
    "JobHandle": JobHandle,
    "app.jobs": Jobs,
    "app.queues": Queues,
    "app.schedules": Schedules,
    "app.tasks": TasksOfApp,
    "app.operations": Operations,
    "app.audit": Audit,
    "app.tokens": Tokens,
    "app.consumers": ConsumerDesk,
    "ClaimedJob": ClaimedJob,
    "Batch": Batch,
    "Worker": Worker,
    "Node": Node,
    "Context": Context,
    "BatchContext": BatchContext,
    "Call": Call,
    "EventContext": EventContext,
}
OURS = {  # public for the other modules of Holdfast, not for callers
    "App": {"enqueue_new"},
    "app.schedules": {"schedule"},
    "app.tasks": {"add"},
    "ClaimedJob": {"belongs_to"},
    "Batch": {"close", "finishes"},
    "Context": {"begun", "committed", "uncompleted", "stored_text"},
    "BatchContext": {"calls_given", "close", "outcomes"},
    "Call": {"close", "outcome", "outcome_of"},
}
CALL = re.compile(r"^(?:(await|async with) |@)?\w+\.(\w+)(?:\((.*)\))?(?: as \w+)?$")
UNPACK = re.compile(r"Unpack\[(\w+)\]$")
SPAN = re.compile(r"`([^`]+)`")
WHERE = (holdfast, holdfast.hooks, values, stream_values, decision, job, allocation)


class Named(NamedTuple):
    """A method or an attribute, as the page shows it; `parameters` None: without parentheses."""

    text: str
    name: str
    is_awaited: bool
    parameters: list[str] | None


def rows(title: str) -> list[list[str]]:
    """Return the cells of the tables in a section."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [row for row in cells if row[0].strip(" -")]


def named(title: str) -> list[Named]:
    found: list[Named] = []
    for first, *_ in rows(f"`{title}`"):
        for text in SPAN.findall(first):
            call = CALL.match(text)
            assert call, f"{text}: not of a form that this test can read"
            how, name, inside = call.groups()
            parameters = None if inside is None else [part.partition("=")[0] for part in inside.split(", ") if part]
            found.append(Named(text, name, how == "await", parameters))
    return found


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def own_attributes(cls: type) -> set[str]:
    """Return the public names that instances are given by their classes' `__init__`."""
    makers = [vars(each)["__init__"] for each in cls.__mro__[:-1] if "__init__" in vars(each)]
    texts = [inspect.getsource(maker) for maker in makers if inspect.isfunction(maker)]
    return {name for text in texts for name in re.findall(r"self\.([a-z]\w*)\b[^=\n]*=", text)}


@pytest.mark.parametrize("title", CLASSES)
def test_every_public_method_is_on_the_page(title):
    shown = {entry.name for entry in named(title)}

    assert public(CLASSES[title]) - OURS.get(title, set()) - shown == set()


@pytest.mark.parametrize("title", CLASSES)
def test_the_page_names_nothing_that_is_not_there(title):
    known = public(CLASSES[title]) | own_attributes(CLASSES[title])

    assert {entry.name for entry in named(title)} - known == set()


@pytest.mark.parametrize("title", OURS)
def test_what_is_ours_is_there_and_not_shown(title):
    assert OURS[title] <= public(CLASSES[title])
    assert {entry.name for entry in named(title)} & OURS[title] == set()


@pytest.mark.parametrize("title", CLASSES)
def test_methods_are_shown_as_they_are_called(title):
    for entry in named(title):
        method: Any = inspect.getattr_static(CLASSES[title], entry.name, None)
        if isinstance(method, Delegated):
            method = getattr(CLASSES[title], entry.name)
        elif entry.text.startswith("app.on("):
            method = Observing.on  # an attribute of each app, because of its overloads
        assert entry.is_awaited is inspect.iscoroutinefunction(method), entry.text
        is_method = inspect.isfunction(inspect.unwrap(method))
        assert (entry.parameters is not None) is is_method, entry.text
        if entry.parameters is not None:
            _, *parameters = inspect.signature(method).parameters.values()
            check_parameters(entry, parameters, options_of(method))


def options_of(method: Any) -> set[str]:
    """Return the options that a method takes by `**options: Unpack[…]`."""
    unpacked = [UNPACK.match(text) for text in method.__annotations__.values()]
    return {
        name for found in unpacked if found for name in inspect.unwrap(method).__globals__[found[1]].__annotations__
    }


def check_parameters(entry: Named, parameters: list[Parameter], options: set[str]) -> None:
    shown = {name.lstrip("*") for name in entry.parameters or ()}
    taken = {parameter.name for parameter in parameters}
    if options & shown:  # they are shown by name
        taken = {each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD} | options
    needed = {
        parameter.name
        for parameter in parameters
        if parameter.default is Parameter.empty
        and parameter.kind not in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    }
    assert shown - taken - {"…"} == set(), f"{entry.text}: no such parameters"
    assert needed - shown == set(), f"{entry.text}: these cannot be left out"
    assert "…" in shown or taken - shown == set(), f"{entry.text}: shows neither these nor an ellipsis"


def test_the_fields_of_values_are_there():
    for first, second in rows("Values"):
        (name,) = SPAN.findall(first)
        cls = next(getattr(module, name) for module in WHERE if hasattr(module, name))
        beside_brackets = re.sub(r"\([^)]*\)", "", second)
        fields = [text for text in SPAN.findall(beside_brackets) if text != "Job"]
        assert fields, name
        assert [field for field in fields if not hasattr(cls, field)] == [], name


def test_the_sections_of_the_page_are_those_that_are_tested():
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)

    assert [title.strip("`") for title in titles] == [*CLASSES, "Values"]
