"""Metrics, health and traces of an app: everything is off until one of these functions is called.

Neither prometheus-client nor opentelemetry is imported before that. What the HTTP server mounts is in `exposition`,
`health` and `backlog`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from holdfast.app.app import App
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

__all__ = ["measure", "serve_metrics", "trace"]
T = TypeVar("T")


def measure(app: App, registry: CollectorRegistry | None = None) -> None:
    """Count what this process does with the jobs of an app, in a registry of prometheus-client, by default the global.

    Call it at the top of the program: workers that have started are not measured. Needs `holdfast[metrics]`.
    """

    def observe() -> None:
        from holdfast.telemetry.families import families_of
        from holdfast.telemetry.job_metrics import metrics_of

        metrics_of(families_of(registry)).observe(app.hooks)

    _imported("metrics", observe)


def serve_metrics(app: App, address: str | int, *, processes: int = 1) -> AbstractContextManager[str]:
    """Serve `/metrics`, `/livez` and `/readyz` of a worker while the block runs: `with … : app.run_worker(…)`.

    `address` is a port of the loopback interface, or "host:port"; port 0 takes a free one. `processes` must be that of
    `run_worker`: one endpoint then serves the sums over all of them. The value of the block is the URL. Needs
    `holdfast[metrics]`; raises `ConfigError` if the port is taken.
    """

    def served() -> AbstractContextManager[str]:
        from holdfast.telemetry.worker_endpoint import serving

        return serving(app, address, processes=processes)

    return _imported("metrics", served)


def trace(
    app: App,
    provider: TracerProvider | None = None,
    *,
    is_parent: bool = False,
    propagator: TextMapPropagator | None = None,
) -> None:
    """Make OpenTelemetry spans of enqueues, appends and handlers; the context travels in the headers.

    The span of a handler links to the span that sent its job or event; with `is_parent` it is its child, unless the
    handler receives several. The default `propagator` writes the W3C trace context, without baggage. Call it at the top
    of the module of the app, before its middleware, so that child processes trace too. Needs `holdfast[otel]`.
    """

    def install() -> None:
        from holdfast.telemetry.tracing import Tracing

        Tracing(app, provider, is_parent=is_parent, propagator=propagator).install()

    _imported("otel", install)


def _imported(extra: str, use: Callable[[], T]) -> T:
    try:
        return use()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"opentelemetry", "prometheus_client"}:
            raise
        raise ConfigError(f"{error.name} is not installed: pip install 'holdfast[{extra}]'") from error
