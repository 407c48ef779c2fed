"""The examples of the guides are run, and do what they say."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.docs.test_documentation import ROOT, blocks, run


def fenced(page: str, kind: str) -> list[str]:
    """Return the blocks of a page that begin with these words."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_orders_are_placed_and_paid_in_transactions_of_sqlite_as_shown(tmp_path: Path):
    place, refund = fenced("docs/howto/transactions.md", "py")
    after = """
app.sync.opened()
place(7)
job = refund.sync.enqueue(order_id=8)
print(app.sync.drain("default"), job.sync.result())
"""
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("create table orders (order_id)")
        connection.execute("create table payment (order_id, job_id)")
        (tmp_path / "shop.py").write_text(place + refund + after, encoding="utf-8")

        assert run(tmp_path, "shop.py") == "2 completed {'refunded': 8}\n"
        assert connection.execute("select order_id from orders").fetchall() == [(7,)]
        assert sorted(connection.execute("select order_id from payment")) == [(7,), (8,)]


def test_orders_are_charged_in_batches_as_shown(tmp_path: Path):
    charge, place = fenced("docs/howto/batches.md", "py")
    after = """
async def main() -> None:
    jobs = [await charge.enqueue(n) for n in (7, 8, -1)]
    await place(9)
    await app.drain("default")
    print(await jobs[1].result(), await jobs[2].state())
    await app.close()


asyncio.run(main())
"""
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("create table payment (order_id)")
        (tmp_path / "shop.py").write_text(f"import asyncio\n{charge}{place}{after}", encoding="utf-8")

        assert run(tmp_path, "shop.py") == "{'order': 8} failed\n"
        assert sorted(connection.execute("select order_id from payment")) == [(7,), (8,), (9,)]


def test_a_worker_of_ones_own_reads_the_arguments_and_calls_the_handler(tmp_path: Path):
    (shown,) = [block for block in blocks("docs/howto/own-worker.md") if "class Recorder" in block]
    recorder = shown.partition("\nworker = ")[0]
    before = """
from holdfast import App

app = App("sqlite://")

@app.task(queue="orders")
async def charge(order_id: int, ctx: "Context") -> str:
    lease = (await app.job(ctx.job.id).details()).lease
    return f"{order_id}: {lease.note}"
"""
    after = """
job = charge.sync.enqueue(order_id=7)
app.sync.drain("orders", worker_class=Recorder)
print(job.sync.result())
"""
    (tmp_path / "own.py").write_text(recorder.replace("\nclass ", f"{before}\nclass ") + after, encoding="utf-8")

    assert run(tmp_path, "own.py") == "7: attempt 1 at order 7\n"


def test_schedules_are_declared_and_defined_as_shown(tmp_path: Path):
    declared, defined = fenced("docs/howto/schedules.md", "py")
    after = """
import asyncio

async def main() -> None:
    async with app.working():
        while len(await app.schedules.list()) < 3:
            await asyncio.sleep(0.05)
        await subscribe(7)
        await (await app.schedules.run("report")).wait(timeout=20)
    for view in await app.schedules.list():
        print(view.name, view.definition.times.text(), view.definition.queue, view.owner)

asyncio.run(main())
"""
    (tmp_path / "shop.py").write_text(declared + defined + after, encoding="utf-8")

    shown = run(tmp_path, "shop.py").splitlines()
    assert "report" in shown
    assert shown[-4:] == [  # before them, perhaps, what a schedule has fired meanwhile
        "mail-7 0 8 * * MON default None",
        "nightly 30 2 * * MON-FRI slow app",
        "report */5 * * * * default app",
        "sweep every 0:10:00 default app",
    ]


def test_calls_with_one_key_or_the_same_arguments_make_one_job(tmp_path: Path):
    keyed, by_arguments, quiet = fenced("docs/howto/unique-jobs.md", "python")
    before = """
import asyncio
from holdfast import App

app = App("sqlite://")

@app.task
async def index(doc_id: int, version: int) -> None:
    print("version", version)
"""
    declared, _, calls = by_arguments.partition("\n\n")
    body = "\n".join(f"        {line}" for line in (keyed + calls + quiet).splitlines())
    after = """
        print(len((await app.jobs.list("ready")).jobs), len((await app.jobs.list("scheduled")).jobs))
        await quiet.options(delay=0, unique_key="doc-7", on_conflict="replace").enqueue(doc_id=7, version=3)

asyncio.run(main())
"""
    main = f"{before}\n{declared}\n\nasync def main() -> None:\n    async with app:\n{body}{after}"
    (tmp_path / "unique.py").write_text(main, encoding="utf-8")

    assert run(tmp_path, "unique.py") == "4 1\n"


def test_the_unit_of_systemd_has_comments_on_lines_of_their_own():
    (unit,) = fenced("docs/howto/stop-and-deploy.md", "ini")

    for line in filter(None, unit.splitlines()):
        assert re.fullmatch(r"#.*|\[\w+\]|\w+=[^#]+", line), line


def test_limits_are_declared_as_shown(tmp_path: Path):
    declared, per_key = fenced("docs/howto/limits.md", "python")
    after = """
for number in range(3):
    send_mail.sync.enqueue(to=f"{number}@example.org")
print(app.sync.drain("mails"), [view.limit for view in app.sync.tasks.list()], app.sync.queues.list()[0].limit)
"""
    (tmp_path / "mails.py").write_text(declared + after, encoding="utf-8")
    shown = run(tmp_path, "mails.py").splitlines()
    assert shown[:3] == ["to 0@example.org", "to 1@example.org", "to 2@example.org"]
    limits = "[Limit(running=5, rate='100/m', burst=10)] 20 running"
    assert shown[3] == f"3 completed {limits}"
    after = """
import asyncio
asyncio.run(order(7))
print(app.sync.drain("exports"), [view.key_limit for view in app.sync.tasks.list() if view.name == "export"])
"""
    (tmp_path / "exports.py").write_text(f"{declared}\n\n{per_key}{after}", encoding="utf-8")
    assert run(tmp_path, "exports.py").splitlines() == [
        "customer 7", "1 completed [Limit(running=2, rate='10/s', burst=5)]",
    ]  # fmt: skip


SENTRY = """
from contextlib import contextmanager


class Scope:
    def set_tag(self, name, value):
        print("tag", name, value if name != "job_id" else "…")


@contextmanager
def new_scope():
    yield Scope()


def init():
    print("init")


def capture_exception(error):
    print(repr(error))
"""


def test_the_examples_of_hooks_observe_report_to_sentry_and_wrap_handlers(tmp_path: Path):
    observe, sentry, middleware = blocks("docs/howto/hooks.md")
    run_it = '\ncharge.options({}).sync.enqueue(order_id=7)\napp.sync.drain("default")\napp.sync.close()\n'
    (tmp_path / "sentry_sdk.py").write_text(SENTRY, encoding="utf-8")
    for name, text, options in (
        ("observe", observe, ""),
        ("report", sentry, ""),
        ("wrap", middleware, 'headers={"tenant": "acme"}'),
    ):
        (tmp_path / f"{name}.py").write_text(text + run_it.format(options), encoding="utf-8")

    assert run(tmp_path, "observe.py") == "charging 7\ncharge completed in attempt 1\n"
    assert run(tmp_path, "report.py").splitlines() == [
        "init", "tag task charge", "tag job_id …", "tag attempt 1", "LookupError('there is no order 7')"
    ]  # fmt: skip
    assert re.fullmatch(r"charge of acme took \d+\.\d s\n", run(tmp_path, "wrap.py"))


def test_pictures_are_published_after_all_are_resized_as_shown(tmp_path: Path):
    (shown,) = fenced("docs/howto/sequences.md", "py")
    after = """

async def main() -> None:
    await place("summer", [3, 4])
    await app.drain("default")
    (page,) = [page for page in [await app.jobs.list("completed", task="publish")]]
    print(await app.job(page.jobs[0].id).result())
    await app.close()


asyncio.run(main())
"""
    (tmp_path / "shop.py").write_text(f"import asyncio\n{shown}{after}", encoding="utf-8")

    assert run(tmp_path, "shop.py").splitlines()[-1] == "summer: 3.webp, 4.webp"


def test_jobs_are_cancelled_and_deleted_as_shown(tmp_path: Path):
    shown, _ = fenced("docs/howto/operate.md", "py")
    after = """
import asyncio

async def main() -> None:
    await send.enqueue(to="nowhere")
    await app.drain("mails")
    await send.enqueue_many([send.call(to=f"{number}@example.org") for number in range(3)])
    await tidy_up()
    await send.enqueue(to="a@example.org")
    print(await app.drain("mails"))
    await app.close()

asyncio.run(main())
"""
    (tmp_path / "shop.py").write_text(shown + after, encoding="utf-8")

    assert run(tmp_path, "shop.py") == "3 cancelled, 1 deleted\n1 completed\n"


def test_failed_jobs_are_retried_in_the_background_as_shown(tmp_path: Path):
    first, shown = fenced("docs/howto/operate.md", "py")
    send = first[first.index("@app.task") : first.index("async def tidy_up")]
    after = """
async def main() -> None:
    await send.enqueue(to="nowhere")
    await app.drain("mails")
    started = await retry_failed("ann")
    await app.operations.run_pending()
    print((await app.operations.get(started)).counts, [entry.who for entry in await app.audit.list()])
    await app.close()

asyncio.run(main())
"""
    (tmp_path / "shop.py").write_text(shown + send + after, encoding="utf-8")

    assert run(tmp_path, "shop.py") == "about to retry 1\n{'retried': 1} ['ann']\n"
