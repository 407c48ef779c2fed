"""Redis and Valkey: the whole contract of jobs, by scripts; no streams."""

from __future__ import annotations

try:
    import redis as _redis  # noqa: F401 - reports the missing extra by its own name
except ImportError as error:
    from holdfast.errors import ConfigError

    raise ConfigError("a redis:// store needs its driver: pip install 'holdfast[redis]'") from error

from holdfast.backends.redis.backend import open_backend

__all__ = ["open_backend"]
