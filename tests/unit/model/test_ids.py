from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from holdfast.errors import ConfigError
from holdfast.model.ids import id_text, new_id


def test_an_id_is_taken_as_a_text_or_as_a_uuid_and_given_in_small_letters():
    known = new_id()

    assert id_text(known.upper()) == known
    assert id_text(UUID(known)) == known
    assert id_text(given := uuid4()) == str(given)


@pytest.mark.parametrize("given", [7, None, b"0198", ["0198"]])
def test_what_is_neither_is_refused(given):
    with pytest.raises(
        ConfigError, match="is neither a text nor a UUID: pass the id that an enqueue returned or a list shows"
    ):
        id_text(given)
