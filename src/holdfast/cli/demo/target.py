"""The demo's separate store at the place that a URL names, so that it does not interfere with other data.

- SQLite: the file itself, which must contain nothing but demos;
- PostgreSQL: a separate schema next to the one that the URL names, `holdfast_demo` for `holdfast`;
- MySQL and MariaDB: a separate database on the server, with a name like that;
- Redis: a separate store on the server, with a name like that.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.app.app import App


class StoreKind(NamedTuple):
    """What depends on the scheme of a store's URL, and on nothing else."""

    listing: str = ""
    """The statement that lists its tables, if it has any."""
    setting: str = ""
    """The setting of the URL that names one of several stores on a server."""
    is_database: bool = False
    """Whether a store is a whole database, which the path of the URL names."""
    creates_in_transactions: bool = True
    """Whether a statement that creates or drops a table can be part of a transaction."""
    translate: Callable[[str, str], str] | None = None
    """Writes a statement of the demo in the dialect, for the store of this name."""


TABLES: Final = ("run", "job", "effect", "ledger")
_SCHEMA = "holdfast"
_SUFFIX = "_demo"
_HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_TABLE = re.compile(rf"\bholdfast_demo_(?:{'|'.join(TABLES)})\b")
_MADE = re.compile(r"\bcreate\s+(?:\w+\s+)?table\s+(?:if\s+not\s+exists\s+)?(?:\"?\w+\"?\.)?\"?(\w+)", re.IGNORECASE)
_RENAMED = re.compile(r"\balter\s+table\s+\S+\s+rename\s+to\s+\"?(\w+)", re.IGNORECASE)


def kind_of(url: str) -> StoreKind | None:
    """Return what is known of the store of a URL; None if it cannot keep a demo's tables."""
    from holdfast.app.open import store_of  # only here: importing it takes time

    return _KINDS.get(store_of(url))


def own_url(url: str) -> str:
    """Return the URL of the demo's separate store at the place that a URL names."""
    kind = kind_of(url)
    place, _, query = url.partition("?")
    settings = dict(parse_qsl(query, keep_blank_values=True))
    if kind is not None and kind.is_database:
        parts = urlsplit(place)
        place = parts._replace(path=(parts.path.rstrip("/") or f"/{_SCHEMA}") + _SUFFIX).geturl()
    elif kind is not None and kind.setting:
        settings[kind.setting] = settings.get(kind.setting, _SCHEMA) + _SUFFIX
    else:
        return url
    settings.pop("install", None)  # the demo installs its own tables
    return f"{place}?{urlencode(settings, quote_via=quote)}" if settings else place


def _load() -> dict[str, str]:
    parts = _HEADER.split(files("holdfast.cli.demo").joinpath("demo.sql").read_text(encoding="utf-8"))
    texts = zip(parts[1::2], parts[2::2], strict=True)
    return {name: _COMMENT.sub("", text).strip().rstrip(";") for name, text in texts}


_STATEMENTS = _load()


class DemoStatements(msgspec.Struct, frozen=True):
    """The statements of a demo in the dialect of its store."""

    schema: str
    statements: Mapping[str, str]
    known_tables: frozenset[str]

    @classmethod
    def of(cls, app: App) -> DemoStatements:
        """Return the statements for an app's store; raise `ConfigError` if it cannot run a demo."""
        kind = kind_of(app.backend.url)
        if kind is None or not kind.listing:
            raise refusal()
        _, _, query = app.backend.url.partition("?")
        schema = dict(parse_qsl(query)).get(kind.setting, _SCHEMA) if kind.setting else ""
        if kind.is_database:
            schema = unquote(urlsplit(app.backend.url).path.strip("/"))
        texts = {**_STATEMENTS, "list_tables": _STATEMENTS[kind.listing]}
        if kind.translate is not None:
            texts = {name: kind.translate(text, schema) for name, text in texts.items()}
        script = app.backend.schema.script()
        made = frozenset([*_MADE.findall(script), *_RENAMED.findall(script)])
        return cls(schema, texts, made | {f"holdfast_demo_{table}" for table in TABLES})

    def link(self, connection: Any) -> StatementRunner:
        """Return a runner of the demo's statements on the connection of an open transaction."""
        return StatementRunner(connection, self.statements)

    async def has_tables(self, link: StatementRunner) -> bool:
        """Return whether the demo's tables exist."""
        return ("holdfast_demo_run",) in await link.rows("list_tables")

    async def foreign_tables(self, link: StatementRunner) -> list[str]:
        """Return the tables that were created neither by Holdfast nor by a demo."""
        names = {name for (name,) in await link.rows("list_tables")}
        return sorted(names - self.known_tables)


def refusal() -> ConfigError:
    """Return the error for a store that cannot run a demo."""
    return ConfigError(
        "the demo needs a store that several processes can share: use a SQLite file, as in sqlite:///demo.db, "
        "PostgreSQL, MySQL or Redis"
    )


def _for_postgres(text: str, schema: str) -> str:
    text = text.replace("?", "%s").replace("{schema}", schema)
    return _TABLE.sub(lambda found: f'"{schema}".{found[0]}', text)


def _for_mysql(text: str, database: str) -> str:
    """Translate a statement; an index has the whole text of its column, which therefore has a bound."""
    text = text.replace("?", "%s").replace(" text ", " varchar(500) ").replace("index if not exists", "index")
    return _TABLE.sub(lambda found: f"`{database}`.{found[0]}", text)


_SQLITE: Final = StoreKind("list_sqlite_tables")
_POSTGRES: Final = StoreKind("list_postgres_tables", "schema", translate=_for_postgres)
_MYSQL: Final = StoreKind("list_mysql_tables", is_database=True, creates_in_transactions=False, translate=_for_mysql)
_REDIS: Final = StoreKind(setting="name")
_KINDS: Final = {"sqlite": _SQLITE, "postgres": _POSTGRES, "mysql": _MYSQL, "redis": _REDIS}


class StatementRunner:
    """Runs statements by name; hides small differences between the drivers."""

    def __init__(self, connection: Any, statements: Mapping[str, str]) -> None:
        self._connection = connection
        self._statements = statements

    async def run(self, name: str, *values: object) -> None:
        """Run a statement that returns nothing."""
        await self._connection.execute(self._statements[name], values)

    async def rows(self, name: str, *values: object) -> list[Any]:
        """Return the rows of a statement."""
        found = await self._connection.execute(self._statements[name], values)
        fetched = found.fetchall()
        rows: list[Any] = await fetched if inspect.isawaitable(fetched) else fetched
        return rows

    async def number(self, name: str) -> int:
        """Return the number that a statement selects, 0 for NULL."""
        return int((await self.rows(name))[0][0] or 0)

    async def many(self, name: str, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement for each row."""
        connection = self._connection
        target = connection if hasattr(connection, "executemany") else connection.cursor()
        await target.executemany(self._statements[name], list(rows))
