"""The caller's connection, passed as `using=`: the kinds that a SQL store supports, and how verbs run on it.

```text
   callers.py ── which library? ──▶ the store's drivers, sqlalchemy.py, django.py ──▶ the driver's connection
              ── the store: does it lead to our tables? the steps of the verb, one by one
```

No library is imported for this: an object can only come from a library that is loaded already.
"""
