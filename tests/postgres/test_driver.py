"""Without the driver, the remedy is named."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["psycopg"] = None
from holdfast.app.open import open_backend
from holdfast.errors import ConfigError
try:
    open_backend("postgresql://db/shop")
except ConfigError as error:
    print(error)
"""


def test_a_missing_driver_is_a_config_error_with_the_remedy():
    told = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
    assert "pip install 'holdfast[postgres]'" in told
