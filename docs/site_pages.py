"""A hook of MkDocs: the site also shows the pages at the root of the repository, and its start page is the README.

Links between those pages and `docs/` are rewritten for the site. A link to anything else in the repository, such as the
examples, becomes plain text, because the site does not contain it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the root; the list of pages for readers without the site gives way to the navigation."""
    files.remove(files.src_uris["README.md"])
    for source, target in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=_relinked(text, source, target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page in `docs/` that lead out of it."""
    del config, files
    uri = page.file.src_uri
    return markdown if uri in PAGES.values() else _relinked(markdown, f"docs/{uri}", uri)


def _relinked(text: str, source: str, target: str) -> str:
    """Return a page with the links of its place in the repository changed to those of its place in the site."""

    def relinked(link: re.Match[str]) -> str:
        mark, words, path, anchor = link.groups()
        if "://" in path or path.startswith("mailto:"):
            return link[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if place == "docs/README.md":
            return words
        if place.startswith("docs/"):
            found = place.removeprefix("docs/")
        elif place in PAGES:
            found = PAGES[place]
        else:
            return words
        return f"{mark}[{words}]({posixpath.relpath(found, posixpath.dirname(target) or '.')}{anchor or ''})"

    return _LINK.sub(relinked, text)
