"""Rivals: their command lines, their figures, and how one that fails is named. No rival is installed here."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from benchmarks.bench import Bench
from benchmarks.record import Peer, Record
from benchmarks.rivals import MEASURES, RIVALS, Installed, PeerError, Rival, compare
from tests.benchmarks.test_benchmarks_run import tiny

from benchmarks import rivals

ONE_BY_ONE = {"huey", "dramatiq", "taskiq", "celery"}
"""Rivals without a call for many jobs: both measures are the same."""

DRIVERS = Path(rivals.__file__).parent / "peers"

FAKE = """
import json, os, sys
what, count = sys.argv[1], int(sys.argv[2])
with open({log!r}, "a") as log:
    print(what, count, bool(os.environ["HOLDFAST_BENCH_TARGET"]), file=log)
{body}
"""
TELLS = 'print("noise"); print(json.dumps({"done": count, "seconds": 0.5}))'


def fake(directory: Path, body: str = TELLS) -> Installed:
    program = directory / "fake.py"
    program.write_text(FAKE.format(log=str(directory / "log"), body=body), encoding="utf-8")
    return Installed((sys.executable, str(program)), "9.9")


OURS = {name: (what, lambda _: 1200.0) for name, (what, _) in MEASURES.items()}


def measured(bench: Bench, installed: Installed, *names: str) -> tuple[list[Record], list[Peer]]:
    rival = Rival("fake", "sqlite", "fake.py", (("fake",),), 200)
    return compare(bench, names, lambda _: None, rivals=[rival], install=lambda _: installed, measures=OURS)


def test_a_rival_is_measured_in_what_our_records_are_about(tmp_path):
    records, peers = measured(tiny(tmp_path), fake(tmp_path), "enqueue.bulk", "enqueue.one", "drain.one", "latency.p50")
    assert peers == [Peer("fake", "9.9")]
    assert (tmp_path / "log").read_text().splitlines() == ["bulk 200 True", "one 10 True", "drain 200 True"]
    assert records == [
        Record("enqueue.bulk.peer.fake", "sqlite", 1200.0, "jobs/s", 400.0, 3.0),
        Record("enqueue.one.peer.fake", "sqlite", 1200.0, "jobs/s", 20.0, 60.0),
        Record("drain.one.peer.fake", "sqlite", 1200.0, "jobs/s", 400.0, 3.0),
    ]


def test_our_own_rate_is_measured_by_turns_with_that_of_the_rival(tmp_path):
    rival = Rival("fake", "sqlite", "fake.py", (("fake",),))
    ours = iter([100.0, 900.0, 300.0])
    bench = msgspec.structs.replace(tiny(tmp_path), repeats=3)
    measures = {"drain.one": ("drain", lambda _: next(ours))}
    installed = fake(tmp_path)
    (record,), _ = compare(
        bench, ["drain.one"], lambda _: None, rivals=[rival], install=lambda _: installed, measures=measures
    )
    assert (record.value, record.raw) == (300.0, 600.0)
    assert (tmp_path / "log").read_text().splitlines() == ["drain 300 True"] * 3


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('print(json.dumps({"done": count - 1, "seconds": 0.5}))', "199 of 200 jobs are done"),
        ('print("Error: nothing works", file=sys.stderr); sys.exit(3)', "ended with code 3: Error: nothing works"),
        ('print("hello")', "reported nothing that can be read"),
        ("", "reported nothing that can be read"),
    ],
)
def test_a_rival_that_fails_is_named_with_the_reason(tmp_path, body, reason):
    records, (peer,) = measured(tiny(tmp_path), fake(tmp_path, body), "enqueue.bulk")
    assert records == []
    assert (peer.name, peer.version) == ("fake", "9.9")
    assert reason in (peer.reason or "")


def test_a_rival_that_cannot_be_installed_is_named_and_the_others_are_measured(tmp_path):
    def install(rival: Rival) -> Installed:
        if rival.name == "absent":
            raise PeerError("npm is not on the path")
        return fake(tmp_path)

    wanted = [Rival(name, "sqlite", "fake.py", (("fake",),)) for name in ("absent", "present")]
    records, peers = compare(
        tiny(tmp_path), ["drain.one"], lambda _: None, rivals=wanted, install=install, measures=OURS
    )
    assert peers == [Peer("absent", "", "npm is not on the path"), Peer("present", "9.9")]
    assert [one.name for one in records] == ["drain.one.peer.present"]


def test_rivals_of_another_store_are_left_out(tmp_path):
    elsewhere = [Rival("far", "postgresql", "fake.py", (("fake",),))]
    assert compare(tiny(tmp_path), ["drain.one"], lambda _: None, rivals=elsewhere) == ([], [])


def test_every_rival_has_a_driver_that_knows_the_measures():
    for rival in RIVALS:
        text = (DRIVERS / rival.driver).read_text(encoding="utf-8")
        assert '"drain"' in text, rival.name
        assert '"one"' in text or rival.name in ONE_BY_ONE, rival.name
    assert {what for what, _ in MEASURES.values()} == {"bulk", "one", "drain", "latency"}


def test_environments_live_in_a_folder_that_only_this_user_can_write_to(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = rivals.cache()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(PeerError, match="only this user"):
        rivals.cache()


def test_the_offers_of_a_rival_are_tried_in_turn_and_all_reasons_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    tried: list[tuple[str, ...]] = []

    def refuse(home: Path, packages: tuple[str, ...]) -> None:
        tried.append(packages)
        raise PeerError(f"there is no {packages[0]}")

    monkeypatch.setattr(rivals, "_install_python", refuse)
    with pytest.raises(PeerError, match="there is no new; there is no old"):
        rivals.install(Rival("fake", "sqlite", "fake.py", (("new",), ("old",))))
    assert tried == [("new",), ("old",)]
