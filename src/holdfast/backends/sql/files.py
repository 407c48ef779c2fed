"""The `.sql` files of a store: its named statements under `sql/`, its numbered migrations under `migrations/`.

Statements that dialects share are written once, in the folder `sql` beside this module. They are spelled as for
PostgreSQL, except that a parameter is `:name`. A dialect translates what it spells differently:

```text
   {schema}.job                 the table; {now}, {priority_step}: the clock and the constant
   :seq::bigint                 a cast, where types are not deduced
   seq = any(:seqs::bigint[])   one of a list
   for update skip locked       a lock; nothing where a writer has locked the whole store
   join                         in the order in which the tables should be read
   cross join lateral (select id from {schema}.job where seq = running.seq limit 1) as job
                                the one row, by its key
```

A statement that runs for each of many rows is written for one of them. A dialect that needs another text has its own
under the same name: because of its planner, or to write many rows at once, with lists as parameters.

What several statements repeat is written once:

```text
   -- name: leave_{ended}: failed, cancelled      two statements; {ended} in the text stands for each of the words
   -- part: state_of_job                          a text that statements name as {state_of_job}
```

A dialect may use the parts of the shared statements in its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Literal

_HEADER = re.compile(r"^-- (name|part): ([\w{}]+)(?:: ([\w, ]+))?$", re.MULTILINE)
_PLACE = re.compile(r"\{(\w+)\}")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")
SHARED = "holdfast.backends.sql"


def statements(package: str, spelled: Callable[[str], str]) -> dict[str, str]:
    """Return the statements of a store by name: the shared ones as the dialect spells them, and those of its package.

    Raises `RuntimeError` if a package defines a name twice.
    """
    shared = {name: spelled(_COMMENT.sub("", text)) for name, text in own_statements(SHARED).items()}
    parts = {name: spelled(text) for name, text in _read(SHARED, "part").items()}
    return shared | own_statements(package, parts)


def own_statements(package: str, parts: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the statements of one package by name, with its parts put in, and the given ones."""
    known = {**(parts or {}), **_read(package, "part")}
    put_in = partial(_PLACE.sub, lambda place: known.get(place[1], place[0]))
    return {name: put_in(text) for name, text in _read(package, "name").items()}


def _read(package: str, kind: Literal["name", "part"]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(files(package).joinpath("sql").iterdir(), key=lambda path: path.name):
        pieces = _HEADER.split(path.read_text(encoding="utf-8"))[1:]
        for its_kind, header, words, text in zip(*(pieces[number::4] for number in range(4)), strict=True):
            for word in (words or "").split(", ") if its_kind == kind else ():
                place = _PLACE.search(header)
                name = header.replace(place[0], word) if place else header
                if name in found:
                    message = f"{path.name} defines the statement {name} again"
                    raise RuntimeError(message)
                found[name] = text.strip().rstrip(";").replace(place[0] if place else "{}", word)
    return found


def migrations(package: str) -> dict[int, str]:
    """Return the migrations of a store's package by number, in ascending order."""
    found: dict[int, str] = {}
    for path in files(package).joinpath("migrations").iterdir():
        match = _MIGRATION.fullmatch(path.name)
        if match:
            found[int(match[1])] = path.read_text(encoding="utf-8")
    return dict(sorted(found.items()))
