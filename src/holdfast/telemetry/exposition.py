"""`/metrics` of a process that looks at the whole store, such as the HTTP server."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from holdfast.app.app import App
from holdfast.telemetry.store_collector import StoreCollector
from holdfast.telemetry.store_figures import figures_of

CONTENT_TYPE = CONTENT_TYPE_LATEST


async def render(app: App, registry: CollectorRegistry | None = REGISTRY) -> bytes:
    """Return the metrics of the store and, from `registry`, of this process, in the text format of Prometheus.

    Costs a fixed number of store calls, at most once in five seconds. Never raises because of the store: without it,
    `holdfast_store_up` is 0. Call it in one event loop.
    """
    of_store = CollectorRegistry(auto_describe=False)
    of_store.register(StoreCollector(await figures_of(app)))
    own = b"" if registry is None else generate_latest(registry)
    return generate_latest(of_store) + own
