"""The format of logs on stderr: one line per record, with a time in UTC."""

from __future__ import annotations

import logging
import time
from typing import Final

LOG_FORMAT: Final = "%(asctime)s %(levelname)-8s %(name)s: %(message)s"


class UtcFormatter(logging.Formatter):
    """Shows times in UTC, as ISO 8601."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def converter(self, seconds: float | None) -> time.struct_time:
        """Return a time in UTC."""
        return time.gmtime(seconds)
