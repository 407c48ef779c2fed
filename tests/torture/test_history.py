from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.torture.stories import SECOND, done_well

from holdfast.torture.checker import check
from holdfast.torture.events import Clock, Exited, HistoryEnded, LeaseLostSeen, Started
from holdfast.torture.history import History, HistoryDamaged, Writer, encode, now_us


def write(directory: Path, process: str, *events: object, torn: bytes = b"") -> None:
    lines = b"".join(encode(event) for event in events)  # type: ignore[arg-type]
    (directory / f"{process}.jsonl").write_bytes(lines + torn)


def test_a_history_gives_back_what_was_written(tmp_path):
    with Writer(tmp_path, run="r1", role="worker", name="a") as writer:
        writer.write(LeaseLostSeen(at_us=5, job="j1", fence=3))

    events = [event for _, event in History(tmp_path).all()]

    assert [type(event) for event in events] == [Started, LeaseLostSeen, HistoryEnded]
    assert events[1] == LeaseLostSeen(at_us=5, job="j1", fence=3)
    assert writer.path.name == f"worker-a-{os.getpid()}.jsonl"


def test_each_incarnation_has_a_file_of_its_own(tmp_path):
    with Writer(tmp_path, run="r1", role="worker", name="a"), pytest.raises(FileExistsError):
        Writer(tmp_path, run="r1", role="worker", name="a")


def test_a_killed_process_leaves_all_that_it_wrote(tmp_path):
    child = os.fork()
    if not child:
        writer = Writer(tmp_path, run="r1", role="worker", name="a")
        for number in range(1000):
            writer.write(LeaseLostSeen(at_us=number, job="j1", fence=number))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    assert sum(1 for _ in History(tmp_path).of(LeaseLostSeen)) == 1000


def test_the_clock_of_a_history_is_one_for_all_processes():
    read, write_ = os.pipe()
    before = now_us()
    child = os.fork()
    if not child:
        os.write(write_, str(now_us()).encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert before <= int(os.read(read, 100)) <= now_us()
    assert abs(now_us() - time.monotonic() * SECOND) < SECOND
    os.close(read)
    os.close(write_)


def test_a_child_does_not_write_into_the_history_of_its_parent(tmp_path):
    writer = Writer(tmp_path, run="r1", role="worker", name="a")
    child = os.fork()
    if not child:
        try:
            writer.write(LeaseLostSeen(at_us=1, job="j1", fence=1))
        except HistoryDamaged:
            os._exit(7)
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    writer.close()


def test_a_torn_line_is_forgiven_at_the_end_of_a_killed_process(tmp_path):
    write(tmp_path, "worker-a-1", LeaseLostSeen(at_us=5, job="j1", fence=3), torn=b'{"kind":"lease_lo')
    write(tmp_path, "conductor-main-2", Exited(at_us=6, process="worker-a-1", signal=9))

    assert [event for _, event in History(tmp_path).of(LeaseLostSeen)] == [LeaseLostSeen(at_us=5, job="j1", fence=3)]


@pytest.mark.parametrize("witness", [[], [Exited(at_us=6, process="worker-a-1", code=0)]])
def test_a_torn_line_of_a_process_that_was_not_killed_is_damage(tmp_path, witness):
    write(tmp_path, "worker-a-1", LeaseLostSeen(at_us=5, job="j1", fence=3), torn=b'{"kind":"lease_lo')
    write(tmp_path, "conductor-main-2", Clock(at_us=1, sent_us=1), *witness)

    with pytest.raises(HistoryDamaged, match="torn"):
        list(History(tmp_path).all())


def test_a_line_that_is_no_record_is_damage(tmp_path):
    write(tmp_path, "worker-a-1", torn=b'{"kind":"lease_lo\n')

    with pytest.raises(HistoryDamaged, match=r"worker-a-1\.jsonl:1"):
        list(History(tmp_path).all())


def test_a_directory_without_a_history_is_no_history(tmp_path):
    with pytest.raises(HistoryDamaged):
        History(tmp_path)


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_history_in_files_is_judged_as_one_in_memory(tmp_path, spoilt):
    story = done_well(done_well(), "j2")
    story.called(1, "j3", "j4", call="c3")
    if spoilt:
        story.effect("j2", fence=7)
    expected = story.checked()
    for process in {process for process, _ in story.records}:
        write(tmp_path, process, *(event for name, event in story.records if name == process))

    verdict = check(tmp_path, buckets=3)

    assert verdict.broken == expected.broken
    assert verdict.is_clean is not spoilt
    assert (verdict.jobs, verdict.records, verdict.timeline) == (expected.jobs, expected.records, expected.timeline)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == []
