"""The page of the settings, and that of the API, show every setting of an app and of a task."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from holdfast import App
from holdfast.jobs.task import TASK_SETTINGS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PARAMETER = re.compile(r"(\w+)=")


def shown(page: str, call: str) -> set[str]:
    """Return the settings in the first such call that a page shows in backquotes at the beginning of a line."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    found = re.search(rf"^`{re.escape(call)}\((.*)\)`", text, re.MULTILINE)
    assert found is not None, f"{page} shows no `{call}(…)`"
    return set(PARAMETER.findall(found[1]))


@pytest.mark.parametrize("page", ["settings.md", "api.md"])
def test_a_page_shows_every_setting_of_an_app(page: str):
    taken = set(inspect.signature(App.__init__).parameters) - {"self", "unknown"}

    assert shown(page, "App") == taken


def test_the_page_of_the_settings_shows_every_setting_of_a_task():
    assert shown("settings.md", "@app.task") == set(TASK_SETTINGS)
