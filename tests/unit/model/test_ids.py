from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from holdfast.errors import ConfigError, JobNotFound
from holdfast.model.ids import find_by, id_text, new_id


def test_an_id_is_taken_as_a_text_or_as_a_uuid_and_given_in_small_letters():
    known = new_id()

    assert id_text(known.upper()) == known
    assert id_text(UUID(known)) == known
    assert id_text(given := uuid4()) == str(given)


@pytest.mark.parametrize("given", [7, None, b"0198", ["0198"]])
def test_what_is_neither_is_refused(given):
    with pytest.raises(
        ConfigError, match="is neither a str nor a UUID: pass an id that an enqueue returned or a list shows"
    ):
        id_text(given)


def test_a_job_is_looked_for_by_a_uuid_in_any_letters():
    known = new_id()

    assert find_by(known.upper()) == find_by(UUID(known)) == known


SOME_ID = "0198f000-0000-7000-8000-000000000001"


@pytest.mark.parametrize("given", ["nobody", "", "\ud800", "a\0b", f"{{{SOME_ID}}}", SOME_ID.replace("-", ""), " "])
def test_what_no_job_can_have_as_its_id_is_not_found_and_the_remedy_is_told(given):
    with pytest.raises(
        JobNotFound, match=r"a job id looks like .*; pass an id that an enqueue returned or a list shows"
    ) as told:
        find_by(given)
    str(told.value).encode()  # it can be shown and logged


def test_what_is_far_too_long_for_an_id_is_not_shown_whole():
    with pytest.raises(JobNotFound) as told:
        find_by("x" * 100_000)
    assert len(str(told.value)) < 250


@pytest.mark.parametrize("given", [7, None])
def test_what_is_no_text_is_a_wrong_call_and_no_missing_job(given):
    with pytest.raises(ConfigError):
        find_by(given)
