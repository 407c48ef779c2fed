"""The committed OpenAPI document is the one that the code makes."""

from __future__ import annotations

from tests.house.sources import ROOT

from holdfast.server.api.routes import document


def test_the_committed_openapi_document_is_current():
    committed = ROOT / "docs" / "reference" / "openapi.json"

    is_current = committed.read_bytes() == document()  # apart, because the difference fills thousands of lines
    assert is_current, f"write it again: python -m holdfast.server.api > {committed.relative_to(ROOT)}"
