"""The settings of a store's URL."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.store.url_settings import POSITIVE_SECONDS, SECONDS, Setting, read_settings

KNOWN = {"mode": Setting("a|b", "a|b"), "wait": SECONDS, "reply": POSITIVE_SECONDS}


def test_values_are_read():
    assert read_settings([("mode", "b"), ("wait", "0"), ("reply", ".5")], KNOWN, "x:") == {
        "mode": "b",
        "wait": 0.0,
        "reply": 0.5,
    }


@pytest.mark.parametrize("given", [("mode", "c"), ("mode", "ab"), ("other", "a"), ("reply", "0.0"), ("wait", "1s")])
def test_what_is_not_supported_is_refused_with_all_that_is(given):
    supported = r"supported: mode=a\|b, wait=<seconds>, reply=<seconds>$"
    with pytest.raises(ConfigError, match=rf"^x:: invalid setting {given[0]}={given[1]}; {supported}"):
        read_settings([given], KNOWN, "x:")
