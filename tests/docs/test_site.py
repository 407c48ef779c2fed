"""The documentation site: built without a warning, complete, searchable, and without anything from the network."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.docs.test_documentation import ROOT, run

LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    run(ROOT, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target))
    return target


def test_the_site_begins_with_the_readme(site: Path):
    start = (site / "index.html").read_text(encoding="utf-8")

    assert "Kill any process at any time" in start
    assert 'src="pictures/demo.svg"' in start
    assert (site / "pictures" / "demo.svg").is_file()


def test_every_page_is_in_the_site_and_in_its_search(site: Path):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = {page.relative_to(ROOT / "docs") for page in ROOT.glob("docs/**/*.md")} - {Path("README.md")}
    expected = {str(page.with_name(page.name.replace("README", "index")).with_suffix(".html")) for page in pages}

    assert expected - found == set()
    assert {"changelog.html", "contributing.html", "security.html"} <= found


def test_no_page_loads_anything_from_elsewhere(site: Path):
    loaded = [tag for page in site.rglob("*.html") for tag in LOADED.findall(page.read_text(encoding="utf-8"))]

    assert [tag for tag in loaded if "canonical" not in tag] == []


def test_links_that_leave_the_documentation_are_plain_text(site: Path):
    start = (site / "index.html").read_text(encoding="utf-8")

    assert 'href="examples' not in start
    assert 'href="contributing.html"' in start
