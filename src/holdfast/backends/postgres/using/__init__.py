"""The caller's own connection, given as `using=`: what kinds are known, and how a verb runs in its transaction.

```text
   kinds.py ── which library is it? ──▶ of_psycopg, of_asyncpg, of_sqlalchemy, of_django ──▶ the driver's connection
   identity.py ── does it lead to our tables? ──▶ running.py ── the steps of the verb, one by one
```

No library is imported for it: an object can only come from one that is loaded already.
"""

from __future__ import annotations

from holdfast.backends.postgres.using.run import Callers, CallersRunner

__all__ = ["Callers", "CallersRunner"]
