"""A disk that is full, and has space again later."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.harness import ROOT, Gate, Ledger, Workers
from tests.system.stores import SqliteStore

from holdfast import StoreUnavailable
from holdfast.model.job import JobState

SIZE = "6m"
_INSIDE = "HOLDFAST_TEST_IN_NAMESPACE"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    """A small file system of its own; None where this process may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mount.returncode:
        yield None
        return
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def run_in_namespace(request: pytest.FixtureRequest) -> None:
    """Run this very test where this user may mount: in a mount namespace of its own."""
    impossible = "neither mount nor unshare -rm works here, so no small disk can be made"
    can_unshare = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
    if os.environ.get(_INSIDE) or not can_unshare:
        if os.environ.get("CI") == "true":
            pytest.fail(impossible)
        pytest.skip(impossible)
    command = ["unshare", "-rm", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    inside = subprocess.run(
        [*command, request.node.nodeid], cwd=ROOT, env={**os.environ, _INSIDE: "1"}, capture_output=True, check=False
    )
    assert inside.returncode == 0, inside.stdout.decode() + inside.stderr.decode()
    assert b"1 passed" in inside.stdout


class Ballast:
    """A file that takes all the space there is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"

    def take_all(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 9, 1):
                try:
                    while file.write(b"x" * size) == size:
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        self._path.unlink()


def enqueue_until_refused(ledger: Ledger) -> tuple[list[str], StoreUnavailable]:
    """Enqueue while the store takes it; the log may have some room of its own left."""
    taken: list[str] = []
    for _ in range(10_000):
        try:
            taken.append(ledger.enqueue("pay", {"headers": {"ballast": "x" * 2000}}))
        except StoreUnavailable as error:
            return taken, error
    pytest.fail("a full disk took ten thousand jobs")


def test_a_full_disk_refuses_jobs_and_keeps_those_it_has_and_work_goes_on_when_there_is_space(request, disk):
    if disk is None:
        run_in_namespace(request)
        return
    store = SqliteStore(disk / "ledger.db")
    ledger, workers, ballast = Ledger(store), Workers(store), Ballast(disk)
    try:
        jobs = ledger.enqueue_many("pay", [{}] * 20)
        ballast.take_all()
        more, refusal = enqueue_until_refused(ledger)
        assert "is full" in str(refusal)
        assert "nothing was written" in str(refusal)
        jobs += more
        assert {ledger.state(job) for job in jobs} == {JobState.READY}
        worker = workers.start()
        worker.line("claim failed, retrying: .* is full")
        worker.line("claim failed, retrying: .* is full")
        ballast.free()
        ledger.completed(*jobs)
        later = ledger.enqueue("pay")
        ledger.completed(later)
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0, worker.text
        ledger.assert_once([*jobs, later])
        assert len(store.effects()) == len(jobs) + 1
    finally:
        workers.close()
        ledger.close()


def test_what_ends_while_the_disk_is_full_is_written_when_there_is_space(request, disk, tmp_path):
    if disk is None:
        run_in_namespace(request)
        return
    store = SqliteStore(disk / "ledger.db")
    ledger, workers, ballast = Ledger(store), Workers(store), Ballast(disk)
    inside, outside, notes = Gate(tmp_path / "inside"), Gate(tmp_path / "outside"), tmp_path / "notes"
    try:
        paying = ledger.enqueue("pay_late", gate=inside.path)
        noting = ledger.enqueue("pay_outside_late", gate=outside.path, path=str(notes))
        worker = workers.start()
        inside.reached()
        outside.reached()
        ballast.take_all()
        enqueue_until_refused(ledger)
        inside.open()
        outside.open()
        worker.line("writing . outcomes failed, retrying: .* is full")
        assert ledger.state(noting) == JobState.RUNNING
        assert ledger.effects_of(paying) == []
        ballast.free()
        ledger.completed(noting)
        inside.open()  # its transaction failed, so that it runs again
        ledger.completed(paying)
        assert len(notes.read_text().splitlines()) == 1
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0, worker.text
        ledger.assert_once([paying])
    finally:
        workers.close()
        ledger.close()
