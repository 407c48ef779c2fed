"""Print the OpenAPI document: `python -m holdfast.server.api > docs/reference/openapi.json`."""

from __future__ import annotations

import sys

from holdfast.server.api.routes import document

sys.stdout.buffer.write(document())
