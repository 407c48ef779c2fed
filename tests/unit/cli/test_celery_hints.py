"""What users of Celery type first is answered with what to type instead."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("-A", "orders", "worker"), "`holdfast worker run orders:app`"),
        (("-A", "orders:celery", "worker", "-l", "info"), "`holdfast worker run orders:celery`"),
        (("--app=orders:app", "worker"), "`holdfast worker run orders:app`"),
        (("--app", "orders:app", "worker", "run"), "`holdfast worker run orders:app`"),
        (("--app", "orders:app", "job", "list"), "`holdfast job list --app orders:app`"),
        (("--url", "sqlite:///a b.db", "job", "list"), "`holdfast job list --url 'sqlite:///a b.db'`"),
        (("-A",), "-A follows the command"),
        (("worker", "orders:app", "--concurrency", "4"), "`holdfast worker run orders:app --concurrency 4`"),
        (("worker", "run", "orders:app", "-c", "4"), "there is no option -c: use --concurrency"),
        (("worker", "run", "orders:app", "-Q", "mails"), "use --queues"),
        (("worker", "run", "orders:app", "-l", "info"), "use --log-level"),
        (("worker", "run", "orders:app", "--loglevel", "info"), "use --log-level"),
        (("worker", "run", "-A", "orders"), "`holdfast worker run orders:app`"),
        (("worker", "-A", "orders"), "Options follow the command, as in `holdfast worker run …`"),
        (("beat",), "workers run schedules themselves"),
        (("jobs", "list"), "Did you mean 'job'?"),
        (("workers",), "Did you mean 'worker'?"),
        (("inspect", "active"), "use `holdfast lease list`"),
        (("purge",), "use `holdfast job cancel --state ready"),
        (("event", "list"), "The commands are"),
        (("job", "enqueue", "charge", "7"), "'7' has no name: pass arguments by name"),
    ],
)
def test_the_remedy_is_told(shop, words, remedy):
    assert remedy in " ".join(shop.run(*words, code=2).stderr.split())


def test_an_unknown_option_stays_one(shop):
    assert "No such option" in shop.run("worker", "run", "--nope", code=2).stderr
    assert "No such command" in shop.run("nothing", code=2).stderr


def test_a_password_is_not_repeated(shop):
    assert "s3cret" not in shop.run("--url", "postgresql://joe:s3cret@host/x", "job", "list", code=2).output


def test_a_list_of_an_unknown_queue_names_the_closest_one(shop):
    shop.enqueue("charge", "--arg", "order_id=7", "--queue", "orders")
    assert "no job was ever enqueued to odrers" in shop.run("job", "list", "--queue", "odrers").stderr
    assert shop.run("job", "list", "--queue", "orders").stderr == ""
