"""The caller's connection, passed as `using=`: which kinds are supported, and how a verb runs in its transaction.

```text
   detect.py ── which library? ──▶ psycopg.py, asyncpg.py, sqlalchemy.py, django.py ──▶ the driver's connection
   identity.py ── does it lead to our tables? ──▶ run.py ── the steps of the verb, one by one
```

No library is imported for this: an object can only come from a library that is loaded already.
"""

from __future__ import annotations

from holdfast.backends.postgres.using.run import Callers, CallersRunner

__all__ = ["Callers", "CallersRunner"]
