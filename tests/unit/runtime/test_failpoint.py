from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.runtime import failpoint as failpoints

SOURCE = Path(errors.__file__).parent


def run(armed: str, code: str, **options) -> subprocess.Popen[bytes]:
    program = f"from holdfast.runtime.failpoint import failpoint\n{code}"
    environment = {**os.environ, failpoints.VARIABLE: armed}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, **options)


def test_every_name_is_a_point_in_the_source_and_every_point_has_a_name():
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "failpoint.py")
    for name in failpoints.NAMES:
        assert f'failpoint("{name}")' in text, name
    assert text.count("failpoint(") == sum(text.count(f'failpoint("{name}")') for name in failpoints.NAMES)


def test_nothing_happens_where_nothing_is_armed():
    process = run("after_claim=kill", "failpoint('before_flush')")
    process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("action", "code"), [("kill", -signal.SIGKILL), ("exit:3", 3)], ids=["killed", "ended with a code"]
)
def test_an_armed_point_ends_the_process(action, code):
    process = run(f"before_flush=exit:9,after_claim={action}", "failpoint('after_claim')")
    process.communicate(timeout=20)
    assert process.returncode == code


def test_a_count_lets_the_point_act_at_that_time_only():
    process = run("after_claim=exit:3@3", "for n in range(1, 9): print(n, flush=True); failpoint('after_claim')",
                  stdout=subprocess.PIPE)  # fmt: skip
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 3
    assert out.split() == [b"1", b"2", b"3"]


def test_a_point_that_sleeps_goes_on_afterwards(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    failpoints.parse("after_claim=sleep:2.5")["after_claim"].hit()
    assert slept == [2.5]


def test_a_paused_point_goes_on_when_the_fifo_was_written_and_closed(tmp_path):
    fifo = tmp_path / "gate@home"
    os.mkfifo(fifo)
    process = run(f"after_claim=pause:{fifo}", "failpoint('after_claim'); print('on')", stdout=subprocess.PIPE)
    with fifo.open("wb"):  # opens when the other end waits
        assert process.poll() is None
    out, _ = process.communicate(timeout=20)
    assert out == b"on\n"


@pytest.mark.parametrize("text", ["after_clam=kill", "after_claim", "after_claim=die", "after_claim=exit:x",
                                  "after_claim=kill:9", "after_claim=sleep"])  # fmt: skip
def test_what_is_not_understood_is_refused(text):
    with pytest.raises(errors.ConfigError, match="HOLDFAST_FAILPOINTS"):
        failpoints.parse(text)
