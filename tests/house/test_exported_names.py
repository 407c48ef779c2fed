from __future__ import annotations

import inspect
from types import ModuleType

import holdfast

MOST = 54  # jobs and streams, and their errors


def test_the_package_exports_a_sorted_list_without_doubles():
    assert holdfast.__all__, "the package exports nothing"
    assert list(holdfast.__all__) == sorted(set(holdfast.__all__))


def test_the_package_exports_few_names():
    assert len(holdfast.__all__) <= MOST


def test_every_exported_name_can_be_imported_and_documents_itself():
    for name in holdfast.__all__:
        exported = getattr(holdfast, name)
        if inspect.isclass(exported) or inspect.isfunction(exported):
            assert inspect.getdoc(exported), f"{name} has no docstring"


def test_every_exported_class_and_function_is_our_own():
    foreign = [
        f"{name} from {exported.__module__}"
        for name in holdfast.__all__
        if inspect.isclass(exported := getattr(holdfast, name)) or inspect.isfunction(exported)
        if exported.__module__.partition(".")[0] != "holdfast"
    ]

    assert foreign == []


def test_nothing_public_lies_beside_the_exported_names():
    beside = [
        name
        for name, value in vars(holdfast).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and name not in {"annotations", "TYPE_CHECKING"}
        if name not in holdfast.__all__
    ]

    assert beside == []
