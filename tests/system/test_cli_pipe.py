"""The command line as programs use it: no terminal on any side."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from tests.system.cli_program import PROGRAM, Cli, wait_for_line


@pytest.fixture
def cli(tmp_path) -> Cli:
    return Cli(tmp_path)


def test_a_jobs_whole_life_goes_through_the_command_line(cli):
    good, bad = cli.enqueue("charge", "order_id=7"), cli.enqueue("charge", "order_id=-1")
    cli.run("worker", "run", *cli.app, "--until-empty", "--poll-interval", "50ms")
    states = {job["id"]: job["state"] for job in json.loads(cli.run("job", "list", "--json").stdout)["jobs"]}
    assert states == {good: "completed", bad: "failed"}
    assert cli.run("job", "retry", bad).stdout == f"{bad} retried\n"
    cli.run("job", "cancel", bad, "--reason", "enough")
    assert json.loads(cli.run("job", "show", bad, "--json").stdout)["state"] == "cancelled"
    cli.run("doctor")


def test_errors_are_two_lines_without_a_traceback_and_with_debug_they_have_one(cli):
    plain = cli.run("job", "list", code=69)
    assert plain.stdout == ""
    assert len(plain.stderr.splitlines()) == 2
    assert "Traceback" in cli.run("job", "list", "--debug", code=69).stderr


def test_a_store_that_cannot_be_reached_has_its_own_exit_code(cli):
    for words in (("job", "list"), ("worker", "run", *cli.app), ("schema", "install")):
        told = cli.run(*words, "--url", "sqlite:////no/such/place/jobs.db", code=69).stderr
        assert "/no/such/place" in told


def test_no_colour_and_no_control_character_goes_into_a_pipe(cli):
    cli.enqueue("charge", "order_id=-1")
    worker = cli.run("worker", "run", *cli.app, "--until-empty")
    for done in (worker, cli.run("job", "list"), cli.run("doctor"), cli.run("job", "list", "--json")):
        assert "\x1b" not in done.stdout + done.stderr
        assert "\u202e" not in done.stdout + done.stderr
    assert "[red]evil[/red]" in cli.run("job", "list").stdout


def test_logs_go_to_stderr_one_line_for_each_record(cli):
    cli.enqueue("charge", "order_id=-1")
    done = cli.run("worker", "run", *cli.app, "--until-empty", "--log-level", "error")
    assert done.stdout == ""
    (only,) = done.stderr.splitlines()
    assert " ERROR " in only
    assert "second line" in only


def test_a_stopped_worker_lets_its_jobs_end_and_exits_with_0(cli):
    job_id = cli.enqueue("nap", "seconds=0.5")
    with cli.started("worker", "run", *cli.app) as worker:
        wait_for_line(worker, "the nap has begun")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    assert json.loads(cli.run("job", "show", job_id, "--json").stdout)["state"] == "completed"


def test_a_worker_that_gives_jobs_back_says_so_by_exit_code_3(cli):
    job_id = cli.enqueue("nap", "seconds=60")
    with cli.started("worker", "run", *cli.app, "--drain-timeout", "0") as worker:
        wait_for_line(worker, "the nap has begun")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 3
    assert json.loads(cli.run("job", "show", job_id, "--json").stdout)["state"] == "ready"


def test_several_processes_run_under_a_supervisor(cli):
    ids = {cli.enqueue("charge", f"order_id={number}") for number in range(4)}
    done = cli.run("worker", "run", *cli.app, "--processes", "2", "--until-empty", "--worker-id", "box")
    assert "box-w1-" in done.stdout + done.stderr
    assert "box-w2-" in done.stdout + done.stderr
    jobs = json.loads(cli.run("job", "list", "--state", "completed", "--json").stdout)["jobs"]
    assert {job["id"] for job in jobs} == ids


def test_the_workers_of_a_supervisor_name_it(cli):
    cli.enqueue("nap", "seconds=60")
    settings = ("--processes", "2", "--worker-id", "box", "--drain-timeout", "0")
    with cli.started("worker", "run", *cli.app, *settings) as supervisor:
        wait_for_line(supervisor, "the nap has begun")
        workers = json.loads(cli.run("worker", "list", "--json").stdout)["workers"]
        supervisor.send_signal(signal.SIGTERM)
        supervisor.wait(20)
    (name,) = {worker["supervisor_id"] for worker in workers}
    assert name.startswith("box.")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--lease", "0"), 78),
        (("--queues", "a b"), 78),
        (("--worker-id", "a b"), 78),
        (("--queues", ","), 2),
        (("--concurrency", "0"), 2),
        (("--lease", "soon"), 2),
        (("--processes", "0"), 2),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_starts(cli, words, code):
    cli.run("worker", "run", *cli.app, *words, code=code)


@pytest.mark.slow
def test_a_running_worker_is_listed_and_a_killed_one_falls_silent(cli):
    job_id = cli.enqueue("nap", "seconds=60")
    with cli.started("worker", "run", *cli.app, "--lease", "4", "--worker-id", "box") as worker:
        wait_for_line(worker, "the nap has begun")
        assert [seen["state"] for seen in _workers(cli)] == ["live"]
        worker.kill()
    # The worker is dead, so both only grow: it stays silent, and its lease stays expired.
    while not all(seen["state"] == "silent" for seen in _workers(cli)):
        pass
    (silent,) = _workers(cli)
    assert silent["worker_id"].startswith("box.")
    while not (leases := json.loads(cli.run("lease", "list", "--expired", "--json").stdout)["leases"]):
        pass
    (lease,) = leases
    assert lease["job_id"] == job_id
    assert cli.run("lease", "reset", "--expired").stdout == f"{job_id} ready\n"


def _workers(cli):
    return json.loads(cli.run("worker", "list", "--json").stdout)["workers"]


def test_a_reader_that_goes_away_ends_a_list_without_a_traceback(cli):
    cli.run("schema", "install")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*PROGRAM, "schema", "show"],
        cwd=cli.directory, env=cli.environment({}), stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
        timeout=20,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(cli, shell):
    # The script of bash asks the bash that is installed for its version.
    script = cli.run(_HOLDFAST_COMPLETE=f"{shell}_source").stdout
    assert "_HOLDFAST_COMPLETE" in script


def test_completion_offers_commands_and_states(cli):
    offered = cli.run(_HOLDFAST_COMPLETE="bash_complete", COMP_WORDS="holdfast job list --state f", COMP_CWORD="4")
    assert offered.stdout == "plain,failed\n"


def test_the_version_is_printed(cli):
    assert cli.run("--version").stdout.startswith("holdfast, version ")


def test_events_are_followed_as_they_are_appended_until_ctrl_c(cli):
    cli.run("schema", "install")
    append = ("event", "append", "companies", "--stream", "company-7", "--name")
    cli.run(*append, "founded")
    with cli.started("event", "read", "companies", "--follow") as reader:
        wait_for_line(reader, "founded")
        cli.run(*append, "renamed")
        wait_for_line(reader, "renamed")
        reader.send_signal(signal.SIGINT)
        assert reader.wait(20) == 130
