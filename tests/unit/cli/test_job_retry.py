"""What is retried is what the person was asked about."""

from __future__ import annotations

from holdfast import App, OutcomeUnknown


def _listed(shop, state: str) -> set[str]:
    return {job["id"] for job in shop.json("job", "list", "--state", state)["jobs"]}


def test_what_fails_after_the_question_is_not_retried_in_place_of_what_was_asked_about(
    shop, at_the_question, monkeypatch
):
    monkeypatch.setattr("holdfast.app.bulk._PAGE", 2)
    meant = {shop.enqueue() and shop.fail() for _ in range(3)}
    newer = {shop.enqueue() for _ in range(2)}
    questions = at_the_question(lambda: [shop.fail() for _ in newer])

    assert shop.run("job", "retry", "--state", "failed").stdout == "3 jobs retried\n"

    assert questions == ["Retry 3 jobs (failed)?"]
    assert _listed(shop, "ready") == meant
    assert _listed(shop, "failed") == newer


def test_what_fails_after_the_question_is_left_alone_though_somebody_else_has_retried_one_of_those_meant(
    shop, at_the_question
):
    meant = [shop.enqueue() and shop.fail() for _ in range(2)]
    newer = shop.enqueue()

    def happens() -> None:
        shop.fail()
        shop.within(lambda backend: backend.jobs.retry(meant[0]))

    at_the_question(happens)

    assert shop.run("job", "retry", "--state", "failed").stdout == "1 job retried\n"
    assert _listed(shop, "ready") == set(meant)
    assert _listed(shop, "failed") == {newer}


def test_a_copy_of_which_nobody_knows_whether_it_was_made_is_told_with_the_way_to_find_out(shop, monkeypatch):
    shop.enqueue()
    completed = shop.complete()

    async def lose(app: App, *args: object, **words: object) -> list[bool]:
        raise OutcomeUnknown("the disk failed")

    monkeypatch.setattr(App, "enqueue_new", lose)

    told = shop.run("job", "retry", completed, "--again", code=69).stderr

    assert "the disk failed; the copy, job 0" in told
    copy_id = told.split("holdfast job show ")[1].strip()
    assert f"job {copy_id}, may have been created" in told
    assert completed != copy_id
