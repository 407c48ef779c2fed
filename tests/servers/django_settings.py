"""Django's settings, which a process can configure only once: every test that needs Django calls this."""

from __future__ import annotations

import django
from django.conf import settings
from django.db import connections


def configure_django() -> None:
    """Configure Django with a database in memory as `default`, unless that has been done."""
    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            LOGGING_CONFIG=None,  # the logging of this process is the tests'
            USE_TZ=True,
        )
        django.setup()


def add_database(alias: str, **database: str) -> str:
    """Make a database known under a name, and return the name."""
    configure_django()
    if alias not in connections.settings:
        connections.settings[alias] = connections.configure_settings({"default": {}, alias: database})[alias]
    return alias
