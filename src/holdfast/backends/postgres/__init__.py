"""PostgreSQL: the store for fleets. Many machines, one database; effect and completion in the user's own transaction.

`postgresql://user@host/database?schema=holdfast`; `location.py` lists the settings. Opening a database that has not our
schema installs it, so that the first run needs no second command; with `install=never` in the URL, or without the right
to create it, `holdfast schema install` is asked for. Tables of an older or newer version are always refused.
"""

from __future__ import annotations

from holdfast.errors import ConfigError

try:
    import psycopg as psycopg
except ModuleNotFoundError as missing:
    raise ConfigError("postgresql:// needs the driver psycopg: pip install 'holdfast[postgres]'") from missing

from holdfast.backends.postgres.backend import open_backend

__all__ = ["open_backend"]
