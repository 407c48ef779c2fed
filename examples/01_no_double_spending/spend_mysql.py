"""100,000 jobs on MySQL or MariaDB, consumers that are killed, no job done twice: python spend_mysql.py all.

`all` starts a throw-away server, unless $SPEND_URL names one: mysql://root@127.0.0.1:3306/. The steps are also there
one by one, for a server that stays: produce, consume NAME, verify, clean.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pymysql

from holdfast import App, ClaimedJob, LeaseLost, OutcomeUnknown, StoreUnavailable, TransactionExpired
from holdfast.testing.mysql_server import mysql_server

DATABASE = "holdfast_spending"
JOBS = int(os.environ.get("SPEND_JOBS", "100000"))
CONSUMERS, KILLS = 4, 3
BATCH_SIZE = 200
SUCCESS_RATE = 0.9
WORK_TIMEOUT = 3.0  # seconds: then the jobs of a dead consumer are available again
MAX_ATTEMPTS = 20
STEP = 10_000
VERIFY = (Path(__file__).parent / "verify.sql").read_text()

app = App(f"{os.environ.get('SPEND_URL', 'mysql://root@127.0.0.1:3306/').rstrip('/')}/{DATABASE}")


@app.task(queue="spending", max_attempts=MAX_ATTEMPTS, retry=0.1)
async def pay(number: int) -> None:
    """Carry a number; the consumers below claim these jobs and never call this."""


def connect(database: str | None = DATABASE) -> pymysql.Connection:
    place = urlsplit(os.environ["SPEND_URL"])
    user, password = unquote(place.username or "root"), unquote(place.password or "")
    return pymysql.connect(
        host=place.hostname, port=place.port or 3306, user=user, password=password, database=database
    )


def rows(statement: str, database: str | None = DATABASE) -> list[tuple]:
    with closing(connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        connection.commit()
        return list(cursor.fetchall())


async def produce() -> None:
    """Produce what is missing: our rows and the jobs commit together, because the jobs are in our transaction."""
    rows(f"create database if not exists {DATABASE}", None)
    rows("create table if not exists produced (number int not null)")
    # No unique constraint: if a job were done twice, both rows would be here to be seen.
    rows("create table if not exists spent (number int not null, attempt int, worker varchar(40), index (number))")
    async with app:
        ((first,),) = rows("select coalesce(max(number), 0) + 1 from produced")
        for start in range(first, JOBS + 1, STEP):
            numbers = [(number,) for number in range(start, min(start + STEP, JOBS + 1))]
            with closing(connect()) as connection, connection.cursor() as cursor:
                cursor.executemany("insert into produced values (%s)", numbers)
                await pay.options(using=connection).enqueue_many(numbers)
                connection.commit()
    print(f"produced {JOBS:,} jobs")


async def consume(name: str) -> None:
    """Consume until nothing is left. A consumer keeps nothing that matters: kill it, interrupt it, start it again."""
    done = 0
    async with app:
        while any(queue.ready or queue.scheduled or queue.running for queue in await app.queues.list()):
            try:
                await app.rescue()  # makes the jobs of dead consumers available again once their leases have expired
                held = await app.claim("spending", BATCH_SIZE, lease=WORK_TIMEOUT, worker_id=name)
                done += await spend(held, name) if held else 0
            except (LeaseLost, StoreUnavailable, OutcomeUnknown, TransactionExpired) as error:
                print(f"{name}: {error}")  # what is not completed becomes available again
                held = []
            if not held:
                await asyncio.sleep(0.1)
    print(f"{name}: {done:,} done")


async def spend(held: list[ClaimedJob], name: str) -> int:
    """Try each job; effects and completions commit together, or not at all."""
    spent: list[tuple[int, int, str]] = []
    async with app.batch(held) as batch:
        for job in batch.held:
            if random.random() < SUCCESS_RATE:
                spent.append((job.arguments()[1]["number"], job.job.attempt, name))
                batch.complete(job)
            else:
                batch.retry(job, "no luck this time")
        async with batch.connection.cursor() as cursor:
            await cursor.executemany("insert into spent values (%s, %s, %s)", spent)
    return len(spent)


def verify() -> int:
    ((produced, spent, doubled, lost, highest),) = rows(VERIFY)
    expected = 1 + math.log(produced, 1 / (1 - SUCCESS_RATE))  # of so many jobs, one is expected to need as many
    print(
        f"produced {produced:,}, spent {spent:,}, doubled {doubled:,}, lost {lost:,}, "
        f"highest attempt {highest} (about {expected:.0f} expected, and one more for each death of its consumer)"
    )
    fits = highest <= expected + 5 + KILLS + 1  # one run in a million has more, by chance
    return 0 if produced == spent and not doubled and not lost and fits else 1


def clean() -> None:
    rows(f"drop database if exists {DATABASE}", None)


def everything() -> int:
    """Produce, consume with kills, interrupt all, go on, verify."""
    if "SPEND_URL" not in os.environ:
        with mysql_server(is_durable=True) as server:
            environment = {**os.environ, "SPEND_URL": server.url}
            return subprocess.run([sys.executable, __file__, "all"], env=environment, check=False).returncode  # noqa: S603
    clean()
    asyncio.run(produce())
    consumers = [start(number) for number in range(CONSUMERS)]
    for kill in range(KILLS):
        until_spent(JOBS * (kill + 1) // 10)
        consumers[kill].kill()  # at any point of its loop
        print(f"consumer-{kill} was killed")
        consumers[kill].wait()
        consumers[kill] = start(kill)
    until_spent(JOBS // 2)
    for consumer in consumers:
        consumer.terminate()
        consumer.wait()
    print("all were interrupted, and are started again")
    for consumer in [start(number) for number in range(CONSUMERS)]:
        consumer.wait()
    code = verify()
    clean()
    return code


def start(number: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, __file__, "consume", f"consumer-{number}"])  # noqa: S603


def until_spent(count: int) -> None:
    while rows("select count(*) from spent")[0][0] < count:
        time.sleep(0.05)


if __name__ == "__main__":
    steps = {"produce": produce, "consume": consume, "verify": verify, "clean": clean, "all": everything}
    step, *names = sys.argv[1:] or ["all"]
    ended = steps[step](*names)
    sys.exit(asyncio.run(ended) if asyncio.iscoroutine(ended) else ended)
