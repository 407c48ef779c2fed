"""Where the jobs of a graph stand: in layers from left to right, each job right of all its parents."""

from __future__ import annotations

from collections import defaultdict
from graphlib import TopologicalSorter

import msgspec

from holdfast.store.values import GraphJob, JobGraph

BOX_WIDTH, BOX_HEIGHT = 168, 44
_ACROSS, _DOWN = 56, 16
_MARGIN = 8


class DrawnJob(msgspec.Struct, frozen=True):
    """A job and the upper left corner of its box."""

    job: GraphJob
    x: int
    y: int


class Edge(msgspec.Struct, frozen=True):
    """A line from a parent to a child, as the data of an SVG path."""

    path: str
    waits: bool
    """Whether the child still waits for this parent."""


class DrawnGraph(msgspec.Struct, frozen=True):
    """A graph with the places of everything in it."""

    jobs: tuple[DrawnJob, ...]
    edges: tuple[Edge, ...]
    width: int
    height: int
    is_cut: bool
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


def drawn(graph: JobGraph) -> DrawnGraph:
    """Return the places of the jobs. Parents that the graph leaves out have no line."""
    layers = _layers(graph)
    columns: defaultdict[int, list[GraphJob]] = defaultdict(list)
    rows: dict[str, float] = {}
    for job in sorted(graph.jobs, key=lambda job: (layers[job.id], _row_above(job, rows), job.seq)):
        column = columns[layers[job.id]]
        rows[job.id] = len(column)
        column.append(job)
    for column in columns.values():  # again, now that the rows of all parents are known
        column.sort(key=lambda job: (_row_above(job, rows), job.seq))
        rows.update({job.id: row for row, job in enumerate(column)})
    tallest = max(map(len, columns.values()), default=0)
    places: dict[str, tuple[int, int]] = {}
    for layer, column in columns.items():
        offset = (tallest - len(column)) * (BOX_HEIGHT + _DOWN) // 2
        for row, job in enumerate(column):
            places[job.id] = (
                _MARGIN + layer * (BOX_WIDTH + _ACROSS),
                _MARGIN + offset + row * (BOX_HEIGHT + _DOWN),
            )
    states = {job.id: job.state for job in graph.jobs}
    edges = tuple(
        Edge(_path(places[parent], places[job.id]), waits=states[parent] not in {"completed", "failed", "cancelled"})
        for job in graph.jobs
        for parent in job.parents
        if parent in places
    )
    jobs = tuple(DrawnJob(job, *places[job.id]) for job in graph.jobs)
    width = 2 * _MARGIN + len(columns) * (BOX_WIDTH + _ACROSS) - _ACROSS
    return DrawnGraph(jobs, edges, width, 2 * _MARGIN + tallest * (BOX_HEIGHT + _DOWN) - _DOWN, graph.is_cut)


def _layers(graph: JobGraph) -> dict[str, int]:
    """Return the layer of each job: one more than the last of its parents."""
    known = {job.id: job.parents for job in graph.jobs}
    layers: dict[str, int] = {}
    for job_id in TopologicalSorter(known).static_order():
        if job_id in known:
            layers[job_id] = 1 + max((layers[parent] for parent in known[job_id] if parent in layers), default=-1)
    return layers


def _row_above(job: GraphJob, rows: dict[str, float]) -> float:
    above = [rows[parent] for parent in job.parents if parent in rows]
    return sum(above) / len(above) if above else 0.0


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + BOX_WIDTH, start[1] + BOX_HEIGHT // 2
    x2, y2 = end[0], end[1] + BOX_HEIGHT // 2
    bend = (x2 - x1) // 2
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
