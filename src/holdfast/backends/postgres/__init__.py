"""PostgreSQL: the store for fleets. Many machines, one database; effect and completion in the user's transaction.

`postgresql://user@host/database?schema=holdfast`; `location.py` lists the settings. Opening a database without our
schema installs it, so that the first run needs no second command. With `install=never` in the URL, or without the right
to create a schema, opening fails and asks for `holdfast schema install`. Tables of an older or newer version are always
rejected.
"""

from __future__ import annotations

from holdfast.errors import ConfigError

try:
    import psycopg as psycopg
except ModuleNotFoundError as missing:
    raise ConfigError("postgresql:// needs the driver psycopg: pip install 'holdfast[postgres]'") from missing

from holdfast.backends.postgres.backend import open_backend

__all__ = ["open_backend"]
