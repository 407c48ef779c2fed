"""Whether the tables that were found are those of this Holdfast."""

from __future__ import annotations

import pytest

from holdfast.errors import SchemaMismatch
from holdfast.store.schema_version import require_version


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (0, "the tables are missing: check the URL, or run `holdfast schema install`"),
        (2, "the tables have version 2, this Holdfast needs version 3: run `holdfast schema upgrade`"),
        (4, "the tables have version 4, newer than this Holdfast supports (3): upgrade the holdfast package"),
    ],
)
def test_other_tables_are_refused_with_the_remedy(found, said):
    with pytest.raises(SchemaMismatch) as caught:
        require_version(found, 3, "the tables")

    assert str(caught.value).startswith(said)


def test_tables_of_this_version_are_accepted():
    require_version(3, 3, "the tables")
