"""The graph of events: the types that each daemon's reducers emit and read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from flyball.app.config import RunSettings
from flyball.app.controllers import FeedbackFold
from flyball.app.events import CATALOGUE, Kind, Payload, Scope
from flyball.daemons.bootstrap import TERMINAL, consumers, emitters
from flyball.daemons.registry import DAEMONS, daemons_of

STATES = FeedbackFold.name
COLOURS = {Kind.FACT: "#d6eaf8", Kind.REQUEST: "#fcf3cf", Kind.DECISION: "#f5b7b1"}


@dataclass(frozen=True, slots=True)
class Node:
    """An event type with its emitters and readers, by name."""

    payload: type[Payload]
    emitters: tuple[str, ...]
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Event types, and the reducers of each daemon. The other emitters are the broker, hosts and operators."""

    nodes: tuple[Node, ...]
    daemons: Mapping[str, tuple[str, ...]]

    @property
    def others(self) -> list[str]:
        """Emitters other than reducers."""
        hosted = {name for names in self.daemons.values() for name in names}
        return sorted({name for node in self.nodes for name in node.emitters} - hosted)


def whole(settings: RunSettings | None = None) -> Graph:
    """Return all types and reducers, FeedbackState once; ``settings`` add the user's own controllers."""
    daemons = daemons_of(settings) if settings else DAEMONS
    emitted, read = emitters(daemons, settings.taken_over if settings else {}), consumers(daemons)
    nodes = tuple(
        Node(payload, tuple(sorted(emitted.get(payload, ()))), tuple(sorted(read.get(payload, ()))))
        for payload in CATALOGUE
    )
    hosted = {
        name: tuple(reducer.name for reducer in spec.reducers if reducer is not FeedbackFold)
        for name, spec in daemons.items()
        if spec.reducers
    }
    return Graph(nodes, {"controllers' shared state": (STATES,), **hosted})


def compact(settings: RunSettings | None = None) -> Graph:
    """Return the main part of the graph: requests, decisions and important facts.

    Omitted types are failures, those that no reducer reads, and facts and requests about the whole system.
    Omitted readers are a type's own emitters, and FeedbackState except as the only reader of a decision.
    """
    graph, nodes = whole(settings), list[Node]()
    for node in graph.nodes:
        payload = node.payload
        is_decision = payload.kind is Kind.DECISION
        if payload in TERMINAL or payload.event_name.endswith("_FAILED"):
            continue
        others = tuple(name for name in node.readers if name not in node.emitters)
        readers = tuple(name for name in others if name != STATES) or (others if is_decision else ())
        if readers and (is_decision or payload.scope is Scope.CONFIG):
            nodes.append(Node(payload, node.emitters, readers))
    return Graph(tuple(nodes), graph.daemons)


def render(graph: Graph, form: Literal["mermaid", "dot", "json"]) -> str:
    """Write a graph as Mermaid flowchart, Graphviz DOT, or JSON."""
    return {"mermaid": _mermaid, "dot": _dot, "json": _json}[form](graph)


def _mermaid(graph: Graph) -> str:
    shapes = {Kind.FACT: '(["{}"])', Kind.REQUEST: '[/"{}"/]', Kind.DECISION: '{{{{"{}"}}}}'}
    lines = ["flowchart LR"]
    for number, (daemon, reducers) in enumerate(graph.daemons.items()):
        lines += [f'  subgraph d{number}["{daemon}"]', *(f"    {name}" for name in reducers), "  end"]
    lines += [f'  {_id(name)}["{name}"]' for name in graph.others]
    for node in graph.nodes:
        name = node.payload.event_name
        lines.append(f"  {name}{shapes[node.payload.kind].format(name)}")
        if node.emitters:
            lines.append(f"  {' & '.join(map(_id, node.emitters))} --> {name}")
        if node.readers:
            lines.append(f"  {name} --> {' & '.join(map(_id, node.readers))}")
    for kind, colour in COLOURS.items():
        lines.append(f"  classDef {kind.value} fill:{colour},stroke:#555,color:#111")
        if names := ",".join(node.payload.event_name for node in graph.nodes if node.payload.kind is kind):
            lines.append(f"  class {names} {kind.value}")
    return "\n".join(lines) + "\n"


def _id(name: str) -> str:
    return name.replace(" ", "_")


def _dot(graph: Graph) -> str:
    shapes = {Kind.FACT: "ellipse", Kind.REQUEST: "parallelogram", Kind.DECISION: "hexagon"}
    lines = ["digraph events {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    for number, (daemon, reducers) in enumerate(graph.daemons.items()):
        names = " ".join(f'"{name}";' for name in reducers)
        lines.append(f'  subgraph cluster_{number} {{ label="{daemon}"; node [shape=box]; {names} }}')
    for node in graph.nodes:
        name, kind = node.payload.event_name, node.payload.kind
        lines.append(f'  "{name}" [shape={shapes[kind]}, style=filled, fillcolor="{COLOURS[kind]}"];')
        lines += [f'  "{emitter}" -> "{name}";' for emitter in node.emitters]
        lines += [f'  "{name}" -> "{reader}";' for reader in node.readers]
    return "\n".join([*lines, "}"]) + "\n"


def _json(graph: Graph) -> str:
    types = [
        {
            "name": node.payload.event_name,
            "type": node.payload.event_type,
            "kind": node.payload.kind.value,
            "emitters": node.emitters,
            "readers": node.readers,
            "nobody_reads_it": TERMINAL.get(node.payload),
        }
        for node in graph.nodes
    ]
    return json.dumps({"daemons": graph.daemons, "types": types}, indent=2, ensure_ascii=False) + "\n"
