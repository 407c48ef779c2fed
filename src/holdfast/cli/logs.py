"""Log output to stderr."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType

from holdfast.reports.text import block, line, mask

_FORMAT = "%(asctime)s %(levelname)-8s %(name)s: %(message)s"


class SafeFormatter(logging.Formatter):
    """One line per record, with a traceback below it; both without control characters and passwords."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def converter(self, seconds: float | None) -> time.struct_time:
        """Return a time in UTC."""
        return time.gmtime(seconds)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        """Return the record as one line."""
        return line(mask(super().formatMessage(record)))

    def formatException(  # noqa: N802
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """Return the traceback as lines."""
        return block(mask(super().formatException(ei)))


def configure_logs(level: int) -> None:
    """Log to stderr, unless logging is already configured."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter(_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
