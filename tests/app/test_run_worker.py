"""A worker as a program, as Python code starts it."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, ConfigError
from holdfast.runtime.exit_code import ExitCode

LIMIT = 40.0


@pytest.fixture
def app(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app.sync.close()


async def noop() -> None: ...


async def handle(event: Any) -> None: ...


def test_until_empty_with_consumers_alone_is_refused_in_words(app: App):
    app.consumer("billing", category="orders")(handle)

    with pytest.raises(ConfigError, match=r"until_empty runs only tasks.*only consumers \(billing\).*leave it out"):
        app.run_worker(until_empty=True)


def test_until_empty_tells_once_that_consumers_are_left_out(app: App, caplog):
    app.task(noop).sync.enqueue()
    app.consumer("billing", category="orders")(handle)

    with caplog.at_level(logging.WARNING, "holdfast"):
        assert app.run_worker(until_empty=True, poll_interval=0.05) == 0

    told = [record.getMessage() for record in caplog.records if "consumers" in record.getMessage()]
    assert told == ["until_empty runs only tasks: the consumers billing do not run here"]


@pytest.mark.parametrize(("delayed", "jobs"), [(1, "1 job"), (2, "2 jobs")])
def test_until_empty_counts_the_jobs_that_it_leaves(app: App, caplog, delayed: int, jobs: str):
    task = app.task(noop)
    for _ in range(delayed):
        task.options(delay=3600).sync.enqueue()

    with caplog.at_level(logging.WARNING, "holdfast"):
        assert app.run_worker(until_empty=True, poll_interval=0.05) == 0

    said = [record.getMessage() for record in caplog.records]
    assert said == [f"nothing is left to run here except {jobs} scheduled and not due yet"]


def test_a_worker_says_that_it_runs_after_it_has_made_the_tables(app: App, caplog):
    app.task(noop)

    with caplog.at_level(logging.INFO, "holdfast"):
        assert app.run_worker(until_empty=True, poll_interval=0.05) == 0

    said = [record.getMessage() for record in caplog.records]
    (made,) = [at for at, text in enumerate(said) if "created the tables" in text]
    (runs,) = [at for at, text in enumerate(said) if "is running on sqlite://" in text]
    assert made < runs


def test_a_worker_that_cannot_open_its_store_does_not_say_that_it_runs(tmp_path: Path, caplog):
    app = App(f"sqlite:///{tmp_path}/missing/jobs.db")
    app.task(noop)

    with caplog.at_level(logging.INFO, "holdfast"):
        assert app.run_worker(until_empty=True) == ExitCode.UNAVAILABLE

    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


def test_without_tasks_and_consumers_the_remedy_is_to_register_some(app: App):
    with pytest.raises(ConfigError, match=r"register tasks with @app\.task"):
        app.run_worker(until_empty=True)


def test_several_processes_with_a_drain_timeout_as_a_timedelta_are_taken(app: App):
    app.task(noop)
    wrong: dict[str, Any] = {"drain_timeout": "long"}

    with pytest.raises(ConfigError, match="drain_timeout is 'long', not a duration"):
        app.run_worker(processes=2, **wrong)


def run(tmp_path: Path, program: str) -> str:
    """Run a program of two worker processes until its one job is done, and return what it printed."""
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent(
            """
            import asyncio, sys, threading
            from datetime import timedelta
            from holdfast import App, ConfigError, Context

            app = App(f"sqlite:///{sys.argv[1]}/jobs.db?synchronous=normal")

            @app.task
            def greet(ctx: Context) -> str:
                with ctx.sync.transaction() as connection:
                    connection.execute("create table if not exists greeting (n int)")

            def serve():
                try:
                    return app.run_worker(processes=2, until_empty=True, poll_interval=0.05,
                                          drain_timeout=timedelta(seconds=5))
                except ConfigError as error:
                    return error

            """
        )
        + textwrap.dedent(program)
    )
    command = [sys.executable, str(path), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def test_processes_are_forked_after_blocking_calls(tmp_path: Path):
    said = run(
        tmp_path,
        """
        job = greet.sync.enqueue()
        print("ended with", serve())
        print("state", job.sync.state())
        """,
    )

    assert "ended with 0" in said
    assert "state completed" in said


def test_processes_are_forked_after_close_whatever_blocking_calls_did(tmp_path: Path):
    said = run(
        tmp_path,
        """
        greet.sync.enqueue()
        app.sync.drain("default")
        app.sync.close()
        job = greet.sync.enqueue()
        (held,) = app.sync.claim("default")
        with held.sync.context().sync.transaction():
            pass
        app.sync.close()
        job = greet.sync.enqueue()
        app.sync.close()
        print("ended with", serve())
        print("state", job.sync.state())
        """,
    )

    assert "ended with 0" in said
    assert "state completed" in said


def test_a_program_with_threads_of_its_own_keeps_its_connections_and_is_told_who_runs(tmp_path: Path):
    said = run(
        tmp_path,
        """
        go_on = threading.Event()
        threading.Thread(target=go_on.wait, name="mine").start()
        greet.sync.enqueue()
        before = {thread.name for thread in threading.enumerate()}
        print(serve())
        print("kept", before == {thread.name for thread in threading.enumerate()})
        app.sync.close()
        print(serve())
        go_on.set()
        """,
    )
    first, kept, second, *_ = said.splitlines()

    assert "cannot fork workers from a program that runs threads (" in first
    assert "holdfast-sync" in first
    assert "mine" in first
    assert "end them with app.sync.close() first" in first
    assert kept == "kept True"
    assert "runs threads (mine)" in second
    assert "app.sync.close()" not in second


def test_a_store_in_memory_is_not_closed_for_the_sake_of_processes(tmp_path: Path):
    app = App("sqlite://")
    app.task(noop).sync.enqueue()

    with pytest.raises(ConfigError, match=r"app\.sync\.close\(\)"):
        app.run_worker(processes=2)

    assert len(app.sync.jobs.list("ready").jobs) == 1
    app.sync.close()


def test_a_worker_of_consumers_alone_says_that_it_has_ended(tmp_path: Path):
    said = run(
        tmp_path,
        """
        import logging, os, signal
        logging.basicConfig(level=logging.INFO)
        other = App(f"sqlite:///{sys.argv[1]}/other.db")

        @other.consumer("billing", category="orders")
        async def bill(event):
            os.kill(os.getpid(), signal.SIGTERM)

        other.sync.append("orders", stream="order-1", name="placed")
        other.sync.close()
        print("ended with", other.run_worker(node_id="here"))
        """,
    )

    assert "node here is running" in said
    assert "node here has ended" in said
