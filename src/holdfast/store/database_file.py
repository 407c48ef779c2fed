"""Creates the file of a store that lives in one, safely."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import StoreUnavailable


def prepare_file(path: Path) -> None:
    """Create the database file, readable only by its owner, unless it exists.

    Creation never follows a link: write access to the directory must not decide which file is written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        _check_file(path)
    except FileNotFoundError:
        message = f"{path.parent} does not exist: create the directory, or choose another path for the database"
        raise StoreUnavailable(message) from None
    except OSError as error:
        message = f"{path} cannot be created: {error.strerror}"
        raise StoreUnavailable(message) from error
    else:
        os.close(descriptor)


def _check_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        message = f"{path} is a dangling link: remove it, or create its target yourself"
        raise StoreUnavailable(message) from None
    if not stat.S_ISREG(mode):
        message = f"{path} is not a file: name the database file, not a directory or a device"
        raise StoreUnavailable(message)
