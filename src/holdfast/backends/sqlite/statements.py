"""The statements of this backend, read once from its `.sql` files."""

from __future__ import annotations

from holdfast.backends.sql.files import statements

STATEMENTS = statements("holdfast.backends.sqlite")
