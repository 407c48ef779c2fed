"""MySQL and MariaDB: a store for fleets whose data is already there. Effect and completion in the user's transaction.

`mysql://user:password@host:3306/database`, or `mariadb://…`; `location.py` lists the settings. Opening a database
without our tables installs them, so that the first run needs no second command. With `install=never` in the URL, or
without the right to create tables, opening fails and asks for `holdfast schema install`.
"""

from __future__ import annotations

from holdfast.errors import ConfigError

try:
    import asyncmy as asyncmy
    import pymysql as pymysql
except ModuleNotFoundError as missing:
    message = "mysql:// and mariadb:// need the drivers asyncmy and PyMySQL: pip install 'holdfast[mysql]'"
    raise ConfigError(message) from missing

from holdfast.backends.mysql.backend import open_backend

__all__ = ["open_backend"]
