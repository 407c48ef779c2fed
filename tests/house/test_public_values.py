"""Values that users see use aware datetimes and timedeltas, never integers of microseconds."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import Appended, EventPage, Job, LeasedJob
from holdfast.store import stream_values, values

PUBLIC: tuple[type[msgspec.Struct], ...] = (
    Job,
    LeasedJob,
    Appended,
    EventPage,
    *(
        value
        for module in (values, stream_values)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
    ),
)


@pytest.mark.parametrize("value", PUBLIC, ids=lambda value: value.__name__)
def test_no_public_field_is_a_number_of_microseconds(value: type[msgspec.Struct]) -> None:
    fields = [name for name in value.__struct_fields__ if not name.startswith("_")]
    assert [name for name in fields if name.endswith("_us")] == []


def test_the_values_are_found() -> None:
    assert {"JobView", "LeaseView", "Count", "ParkedView", "NodeView"} <= {value.__name__ for value in PUBLIC}
