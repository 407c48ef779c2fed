"""Servers that are downloaded: by a process of their own, beside the tests that need none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import get_args

from holdfast.errors import ConfigError
from holdfast.testing.mysql_server import PACKAGES, Flavour, MysqlProgram, find_program

URL_VARIABLES = {"mariadb": "HOLDFAST_TEST_MARIADB", "mysql": "HOLDFAST_TEST_MYSQL"}


def start_downloads(stores: Iterable[str]) -> None:
    """Start to download the servers of these stores that are not here yet; only one process does it."""
    for flavour in set(get_args(Flavour)).intersection(stores):
        if not os.environ.get(URL_VARIABLES[flavour]) and not _is_here(flavour):
            package = [word for word in PACKAGES[flavour] if word is not None]
            loading = subprocess.Popen(
                [sys.executable, "-m", "holdfast.testing.debian_packages", *package],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a test that needs the server tries again, and names the reason
                start_new_session=True,
            )
            loading.returncode = 0  # it may outlive this process: the next run finds what it has loaded


def _is_here(flavour: Flavour) -> bool:
    try:
        find_program(flavour, downloads=False)
    except ConfigError:
        return False
    return True


@cache
def program_or_reason(flavour: Flavour) -> MysqlProgram | str:
    """Return a server program, once it was downloaded if need be; or why there is none."""
    try:
        return find_program(flavour)
    except ConfigError as error:
        return str(error)


def await_download(store: str) -> None:
    """Wait until the server of a store is here, or cannot be had; before the time of the test begins."""
    if store in URL_VARIABLES and not os.environ.get(URL_VARIABLES[store]):
        program_or_reason(store)
