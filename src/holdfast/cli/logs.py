"""Log output to stderr."""

from __future__ import annotations

import logging
import sys
from types import TracebackType

import click

from holdfast.reports.text import block, line, mask
from holdfast.runtime.log_format import LOG_FORMAT, UtcFormatter

log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    metavar="LEVEL",
    default="info",
    show_default=True,
    help="The level of the log on stderr: debug, info, warning or error.",
)


class SafeFormatter(UtcFormatter):
    """One line per record, with a traceback below it; both without control characters and passwords."""

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
    handler.setFormatter(SafeFormatter(LOG_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
