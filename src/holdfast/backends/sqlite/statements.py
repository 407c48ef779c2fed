"""The statements of this backend, read once from the `.sql` files beside this module."""

from __future__ import annotations

from holdfast.backends.sql.files import statements

STATEMENTS = statements("holdfast.backends.sqlite")
