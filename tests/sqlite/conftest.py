"""The statements that run on SQLite, by name."""

from __future__ import annotations

import pytest

from holdfast.backends.sqlite import connection as connecting
from holdfast.backends.sqlite import execute as executing
from holdfast.backends.sqlite.statements import STATEMENTS


class Heard(dict[str, str]):
    """The statements, and the names of those that were run."""

    def __init__(self) -> None:
        super().__init__(STATEMENTS)
        self.names: list[str] = []

    def __getitem__(self, name: str) -> str:
        self.names.append(name)
        return super().__getitem__(name)

    def since(self) -> list[str]:
        names, self.names = self.names, []
        return names


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard = Heard()
    monkeypatch.setattr(connecting, "STATEMENTS", heard)
    monkeypatch.setattr(executing, "STATEMENTS", heard)
    return heard
