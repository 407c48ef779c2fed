from __future__ import annotations

from tests.unit.cli.conftest import APP, HOSTILE


def _enqueue(shop, order_key):
    return shop.enqueue("charge", "--arg", "order_id=7", "--order-key", order_key)


def test_a_job_is_put_behind_the_others_of_its_key(shop):
    first, second = _enqueue(shop, "customer-3"), _enqueue(shop, "customer-3")
    shown = shop.json("job", "show", second)
    assert (shown["state"], shown["order_key"]) == ("blocked", "customer-3")
    listed = {job["id"]: (job["state"], job["order_key"]) for job in shop.json("job", "list")["jobs"]}
    assert listed == {first: ("ready", "customer-3"), second: ("blocked", "customer-3")}
    assert [job["id"] for job in shop.json("job", "list", "--state", "blocked")["jobs"]] == [second]
    assert "customer-3" in shop.run("job", "show", second).stdout
    (queue,) = shop.json("queue", "list")["queues"]
    assert (queue["ready"], queue["blocked"]) == (1, 1)


def test_a_job_without_a_key_shows_none(shop):
    job_id = shop.enqueue()
    assert shop.json("job", "show", job_id)["order_key"] is None
    assert "order_key" not in shop.run("job", "show", job_id).stdout


def test_a_blocked_job_can_be_cancelled_and_is_retried_at_the_end_of_its_line(shop):
    first, second, third = (_enqueue(shop, "customer-3") for _ in range(3))
    assert "cancelled" in shop.run("job", "cancel", second).stdout
    assert "retried" in shop.run("job", "retry", second).stdout
    assert [shop.complete() for _ in range(3)] == [first, third, second]


def test_a_copy_of_a_completed_job_has_its_key(shop):
    job_id = _enqueue(shop, "customer-3")
    shop.complete()
    copy = shop.run("job", "retry", job_id, "--again").stdout.split()[-1]
    assert shop.json("job", "show", copy)["order_key"] == "customer-3"


def test_a_key_that_cannot_be_kept_is_told_and_nothing_is_enqueued(shop):
    shop.run("schema", "install")
    told = shop.run("job", "enqueue", "charge", *APP, "--arg", "order_id=7", "--order-key", "", code=78).stderr
    assert "order_key='' is empty" in told
    assert shop.json("job", "list")["jobs"] == []


def test_what_is_in_a_key_cannot_act_on_a_terminal(shop):
    key = HOSTILE.replace("\0", "")
    shown = shop.run("job", "show", _enqueue(shop, key)).stdout
    assert "\x1b" not in shown
    assert "[red]" in shown
