"""Redis and Valkey: the whole contract of jobs, by scripts; no streams.

`redis://user:password@host:port/database?name=holdfast`; `location.py` lists the schemes and settings.
"""

from __future__ import annotations

from holdfast.errors import ConfigError

try:
    import redis as redis
except ModuleNotFoundError as missing:
    raise ConfigError("redis:// needs the driver redis-py: pip install 'holdfast[redis]'") from missing

from holdfast.backends.redis.backend import open_backend

__all__ = ["open_backend"]
