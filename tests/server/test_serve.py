"""The server as a command: where it may listen."""

from __future__ import annotations

import pytest
from tests.app.conftest import RELAXED

from holdfast import App, ConfigError
from holdfast.server.serve import serve


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - it is refused
def test_it_does_not_start_on_another_address_without_a_token(tmp_path, host: str):
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}?{RELAXED}")

    with pytest.raises(ConfigError, match="holdfast server token create"):
        serve(app, host=host, port=0)

    assert not app.is_open
