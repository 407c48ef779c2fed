"""Every example runs by its one command, and says what its README says."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.servers import mysql
from tests.servers.kafka import new_prefix, server_url
from tests.servers.redis import program_of

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN = 50.0
DATABASE = "holdfast_spending"


def run(program: str, *args: str, directory: Path, code: int = 0, within: float = WITHIN, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), *args],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_example_has_a_readme_that_names_its_command():
    folders = [path for path in sorted(EXAMPLES.iterdir()) if path.is_dir() and not path.name.startswith((".", "__"))]
    assert len(folders) >= 2
    for folder in folders:
        (command,) = re.findall(r"```sh\npython (\w+\.py)(?: \w+)?\n```", (folder / "README.md").read_text("utf-8"))[:1]
        assert (folder / command).exists()


def test_no_double_spending_plays_all_its_steps(tmp_path):
    output = run("01_no_double_spending/spend.py", "all", directory=tmp_path, SPEND_JOBS="600")

    assert "worker-1 was killed" in output
    assert "produced 600, spent 600, doubled 0, lost 0" in output


def test_no_double_spending_finds_a_doubled_and_a_lost_work(tmp_path):
    spend = "01_no_double_spending/spend.py"
    run(spend, "produce", directory=tmp_path, SPEND_JOBS="20")
    run(spend, "consume", "anna", directory=tmp_path)
    assert "spent 20, doubled 0, lost 0" in run(spend, "verify", directory=tmp_path)

    with closing(sqlite3.connect(tmp_path / "spend.db", isolation_level=None)) as connection:
        connection.execute("update spent set number = 2 where number = 1")
    assert "spent 19, doubled 1, lost 1" in run(spend, "verify", directory=tmp_path, code=1)

    run(spend, "clean", directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["mariadb", "mysql"])
def test_no_double_spending_plays_on_a_server_with_kills_and_an_interruption(tmp_path, flavour):
    server = mysql.server_url(flavour)
    spend = "01_no_double_spending/spend_mysql.py"
    output = run(spend, "all", directory=tmp_path, SPEND_URL=server, SPEND_JOBS="2000")

    assert output.count("was killed") == 3
    assert "all were interrupted" in output
    assert "produced 2,000, spent 2,000, doubled 0, lost 0" in output
    assert (DATABASE,) not in mysql.run(server, "show databases")


@pytest.mark.slow
def test_no_double_spending_on_a_server_finds_a_doubled_and_a_lost_work(tmp_path):
    spend = "01_no_double_spending/spend_mysql.py"
    with mysql.own_server() as server:
        place: dict[str, Any] = {"SPEND_URL": server.url, "SPEND_JOBS": "20"}
        run(spend, "produce", directory=tmp_path, **place)
        run(spend, "produce", directory=tmp_path, **place)  # repeated: nothing is missing
        run(spend, "consume", "anna", directory=tmp_path, **place)
        assert "spent 20, doubled 0, lost 0" in run(spend, "verify", directory=tmp_path, **place)
        mysql.run(server.url + DATABASE, "update spent set number = 2 where number = 1")
        assert "spent 19, doubled 1, lost 1" in run(spend, "verify", directory=tmp_path, code=1, **place)


def test_the_statement_that_verifies_is_that_of_the_page():
    folder = EXAMPLES / "01_no_double_spending"
    assert (folder / "verify.sql").read_text("utf-8") in (folder / "README.md").read_text("utf-8")


def test_the_code_of_the_first_example_stays_short():
    text = (EXAMPLES / "01_no_double_spending" / "spend.py").read_text("utf-8")
    assert len(text.splitlines()) < 120


@pytest.mark.slow
def test_the_lease_worker_recovers_from_the_death_of_a_worker(tmp_path):
    output = run("02_lease_worker/play.py", directory=tmp_path, LEASE_STEP="0.1")

    assert re.search(r"anna\.\w+ begins \S+ \(attempt 1, fence 1\)", output)
    assert "kill -9 anna" in output
    assert re.search(r"ben\.\w+ begins \S+ \(attempt 2, fence \d+\)", output)
    assert re.search(r"completed at attempt 2: report for ada", output)
    assert re.search(r"failed at attempt \d: LookupError: there is no customer of this name", output)


def test_a_job_of_the_lease_worker_can_be_taken_from_it_by_hand(tmp_path):
    program = "02_lease_worker/lease_worker.py"
    run(program, "create", directory=tmp_path)
    with subprocess.Popen(
        [sys.executable, "-u", str(EXAMPLES / program), "worker", "anna"],
        cwd=tmp_path,
        env={**os.environ, "LEASE_STEP": "5"},
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            assert worker.stdout is not None
            begun = re.search(r"begins (\S+) \(attempt 1", worker.stdout.readline())
            assert begun is not None
            assert run(program, "reset", begun[1], directory=tmp_path) == "reset\n"
            assert any(f"begins {begun[1]} (attempt 2" in line for line in worker.stdout)
        finally:
            worker.kill()


@pytest.mark.slow
@pytest.mark.parametrize("events_in_kafka", [False, True])
def test_event_consumers_go_on_though_a_node_is_killed_and_the_leader_stopped(tmp_path, events_in_kafka):
    place = {"HOLDFAST_EVENTS_URL": new_prefix()} if events_in_kafka else {}
    variables: dict[str, Any] = {"EVENTS": "600", "EVENTS_RECOVERY": "2", **place}
    output = run("03_event_consumers/play.py", directory=tmp_path, code=0, **variables)

    assert re.search(r"kill -9 \w+", output)
    assert re.search(r"leader: \w+, epoch 2", output)
    assert "audit     600 events, doubled 0, lost 0, out of order 0" in output
    assert "every event took effect once, in order" in output


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_event_consumers_play_on_a_throw_away_broker(tmp_path):
    server_url()  # installs what a broker needs
    output = run("03_event_consumers/play.py", "--kafka", directory=tmp_path, EVENTS="600", EVENTS_RECOVERY="2")

    assert "audit     600 events, doubled 0, lost 0, out of order 0" in output


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_each_event_becomes_one_job_though_the_consumer_is_killed(tmp_path):
    place: dict[str, Any] = {"HOLDFAST_EVENTS_URL": new_prefix()}
    output = run("07_events_to_jobs/invoices.py", directory=tmp_path, within=200, EVENTS="300", **place)

    assert "kill -9 anna" in output
    assert "300 events, 300 jobs, doubled 0, lost 0" in output


def test_event_consumers_find_a_doubled_and_a_lost_event(tmp_path):
    program = "03_event_consumers/consumers.py"
    run(program, "prepare", directory=tmp_path)
    run(program, "produce", directory=tmp_path, EVENTS="20")
    with closing(sqlite3.connect(tmp_path / "events.db", isolation_level=None)) as connection:
        for consumer, left_out in (("billing", "orders"), ("shipping", "companies"), ("audit", "")):
            connection.execute(
                "insert into effect select ?, category, stream, version, 'anna' "  # the producer numbers likewise
                "from holdfast_event join holdfast_category using (category_id) "
                "where category != ? order by position_id",
                (consumer, left_out),
            )
        assert "every event took effect once, in order" in run(program, "verify", directory=tmp_path)
        connection.execute("delete from effect where rowid = (select min(rowid) from effect)")
        assert "lost" in run(program, "verify", directory=tmp_path, code=1)


def assert_all_scenes(output: str, naps: int, workers: int) -> None:
    totals = re.findall(r"^worker-\d +(\d+) ", output, re.MULTILINE)
    assert len(totals) == workers
    assert sum(map(int, totals)) == naps
    most = [int(number) for number in re.findall(r"^worker-\d +\d+ +[\d.]+ s +(\d+)$", output, re.MULTILINE)]
    assert (len(most), 1 < max(most) <= 8) == (workers, True)
    assert sum(map(int, re.findall(r"^worker-\d ends: (\d+) jobs completed", output, re.MULTILINE))) == naps
    assert "ran in this order: due for 90 s; new, priority 1; new" in output
    (pauses,) = re.findall(r"failed: fetch, attempt 4 of 4, ConnectionError: .*; pauses (.*)", output)
    lengths = [float(pause.removesuffix(" s")) for pause in pauses.split(", ")]
    assert [length >= least for length, least in zip(lengths, (0.1, 0.2, 0.4), strict=True)] == [True] * 3
    assert re.search(r"failed: hang, attempt 1 of 1, TimeLimit", output)
    assert "run again after a repair: page 7" in output
    assert re.search(r"A completed\nB failed: .*\nC cancelled: its parent job", output)
    assert "ada    1 2 3 4 5\ngrace  1 2 3 4 5" in output
    assert output.endswith("Everything came out as it should.\n")


@pytest.mark.slow
def test_workers_over_redis_play_all_scenes_on_a_throw_away_server(tmp_path):
    program_of("valkey")
    assert_all_scenes(run("04_redis_workers/play.py", directory=tmp_path, NAPS="150"), 150, 3)


@pytest.mark.slow
def test_workers_over_redis_play_all_scenes_on_another_store(tmp_path):
    url = f"sqlite:///{tmp_path}/workers.db"
    assert_all_scenes(run("04_redis_workers/play.py", url, directory=tmp_path, NAPS="100", WORKERS="2"), 100, 2)


@pytest.mark.slow
def test_workers_in_shell_and_javascript_are_killed_and_rescued(tmp_path):
    printed = run("06_workers_in_other_languages/play.py", directory=tmp_path)

    assert "Hello, Ada, from shell-2 (attempts: rescued, completed)" in printed
    assert "Hello, Ada, from javascript-2 (attempts: rescued, completed)" in printed


STUB_CURL = """#!/bin/sh
case "$*" in
*leases/claim*) mkdir claimed || exit 22 # there is one job
   echo '{"leases": [{"lease": {"job_id": "j"}, "job": {"kwargs": {"name": "Ada"}}}]}' ;;
*leases/finish*) echo '{"verdicts": [{"verdict": "done"}]}' ;;
*) echo >> extends
   case $(wc -l < extends) in
   1) exit 22 ;;
   2) echo '{"verdicts": [{"verdict": "locked"}]}' ;;
   3) echo '{"verdicts": [{"verdict": "extended"}]}' ;;
   *) echo '{"verdicts": [{"verdict": "lost"}]}' ;;
   esac ;;
esac
"""
STUB_SLEEP = """#!/bin/sh
[ "$1" = work ] || exec /bin/sleep 0.02
for turn in $(seq 200); do
    [ "$(wc -l < extends)" -ge 4 ] && break
    /bin/sleep 0.02
done
exec /bin/sleep 0.2
"""


NAMED_BADLY = """#!/bin/sh
case "$*" in
*leases/claim*) mkdir claimed || exit 22 # there is one job
   printf '%s\\n' '{"leases": [{"lease": {"job_id": "j"}, "job": {"kwargs": {"name": "Ada\\nB \\\\c \\"x\\""}}}]}' ;;
*leases/finish*) for each; do body=$each; done; printf '%s' "$body" > finished
   echo '{"verdicts": [{"verdict": "done"}]}' ;;
esac
"""


def test_the_shell_worker_takes_any_text(tmp_path):
    (tmp_path / "curl").write_text(NAMED_BADLY, encoding="utf-8")
    (tmp_path / "curl").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["timeout", "10", "sh", str(EXAMPLES / "06_workers_in_other_languages" / "worker.sh")]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        shown = "".join(islice(worker.stdout, 4))
        worker.terminate()

    assert shown == 'shell greets Ada\nB \\c "x"\nshell: done for Ada\nB \\c "x"\n'
    finished = json.loads((tmp_path / "finished").read_text(encoding="utf-8"))
    assert finished["leases"][0]["result"] == 'Hello, Ada\nB \\c "x", from shell'


def test_the_shell_worker_extends_until_its_lease_is_lost(tmp_path):
    (tmp_path / "extends").touch()
    for name, text in (("curl", STUB_CURL), ("sleep", STUB_SLEEP)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SECONDS_OF_WORK": "work"}
    script = EXAMPLES / "06_workers_in_other_languages" / "worker.sh"
    with subprocess.Popen(["sh", script], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        shown = [next(worker.stdout).strip() for _ in range(2)]
        worker.kill()

    assert shown == ["shell greets Ada", "shell: done for Ada"]
    assert len((tmp_path / "extends").read_text(encoding="utf-8")) == 4
