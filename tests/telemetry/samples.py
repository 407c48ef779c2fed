"""Reads an exposition with the parser of prometheus-client, which refuses what Prometheus would refuse."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families


class Samples:
    """The samples of an exposition."""

    def __init__(self, exposition: bytes) -> None:
        families = list(text_string_to_metric_families(exposition.decode()))
        names = [family.name for family in families]
        assert len(names) == len(set(names)), "a family is exposed twice"
        self.all = [sample for family in families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """Return the value of the only sample of this name and these labels."""
        (found,) = [one for one in self.all if one.name == name and labels.items() <= one.labels.items()]
        return found.value

    def names(self) -> set[str]:
        return {sample.name for sample in self.all if not sample.name.endswith("_created")}


def samples_of(registry: CollectorRegistry) -> Samples:
    return Samples(generate_latest(registry))
