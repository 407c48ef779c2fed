"""The HTTP server: an API for programs in any language, and the dashboard. Needs the extra `holdfast[server]`.

```python
from holdfast.server import asgi

api.mount("/holdfast", asgi(app))       # in FastAPI, Starlette, or any other ASGI program
```
"""

from __future__ import annotations

from holdfast.server.access import Caller, Role
from holdfast.server.application import asgi

__all__ = ["Caller", "Role", "asgi"]
