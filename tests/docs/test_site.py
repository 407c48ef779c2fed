"""The documentation site: built without a warning, complete, searchable, and without anything from the network."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.docs.test_documentation import ROOT, run

LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    run(ROOT, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target))
    return target


def test_a_warning_fails_the_build(tmp_path: Path):
    """`--quiet` would let warnings pass."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("mkdocs.yml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        shutil.copy(ROOT / name, tmp_path)
    with (tmp_path / "docs" / "howto" / "watch.md").open("a", encoding="utf-8") as page:
        page.write("\n[nowhere](no-such-page.md)\n")

    with pytest.raises(AssertionError, match=r"no-such-page\.md"):
        run(tmp_path, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site"))


def test_make_builds_the_site_so_that_a_warning_fails():
    (command,) = re.findall(r"mkdocs build .*", (ROOT / "Makefile").read_text(encoding="utf-8"))

    assert command.startswith("mkdocs build --strict 2>&1")


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
