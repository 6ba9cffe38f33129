"""The graph of events: which reducer, in which daemon, emits and reads which types. Drawn from the wiring itself."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from app.controllers import FeedbackFold
from app.events import CATALOGUE, Kind, Payload, Scope
from daemons.bootstrap import TERMINAL, consumers, emitters
from daemons.registry import DAEMONS
from daemons.spec import DaemonSpec

Format = Literal["mermaid", "dot", "json"]
STATES = FeedbackFold.name
FAILURE = "_FAILED"


@dataclass(frozen=True, slots=True)
class Node:
    """An event type with those who emit it and those who read it, by name."""

    payload: type[Payload]
    emitters: tuple[str, ...]
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Event types, and the reducers of each daemon. Emitters in no daemon are the broker, hosts and operators."""

    nodes: tuple[Node, ...]
    daemons: Mapping[str, tuple[str, ...]]

    @property
    def others(self) -> list[str]:
        """Emitters that are no reducers."""
        hosted = {name for names in self.daemons.values() for name in names}
        return sorted({name for node in self.nodes for name in node.emitters} - hosted)


def whole(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Graph:
    """Return all types and reducers. FeedbackState is shown once, though each daemon with controllers folds it."""
    emitted, read = emitters(daemons), consumers(daemons)
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


def compact(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Graph:
    """Return what a reader wants to see first: requests, decisions and main facts.

    Left out are types about the whole system other than decisions, failures, what nobody reads, a worker's reading of
    its own results, and what FeedbackState reads beside others.
    """
    graph = whole(daemons)
    nodes = tuple(_compacted(node) for node in graph.nodes if _is_main(node))
    return Graph(tuple(node for node in nodes if node.readers), graph.daemons)


def _is_main(node: Node) -> bool:
    payload = node.payload
    of_interest = payload.scope is Scope.CONFIG or payload.kind is Kind.DECISION
    return of_interest and not payload.event_name.endswith(FAILURE) and payload not in TERMINAL


def _compacted(node: Node) -> Node:
    readers = tuple(name for name in node.readers if name not in node.emitters)
    others = tuple(name for name in readers if name != STATES)
    only_state = readers if node.payload.kind is Kind.DECISION else ()
    return Node(node.payload, node.emitters, others or only_state)


def render(graph: Graph, form: Format) -> str:
    """Write a graph as a Mermaid flowchart, as Graphviz DOT, or as JSON."""
    return {"mermaid": _mermaid, "dot": _dot, "json": _json}[form](graph)


SHAPES = {Kind.FACT: ("([", "])"), Kind.REQUEST: ("[/", "/]"), Kind.DECISION: ("{{", "}}")}
COLOURS = {Kind.FACT: "#d6eaf8", Kind.REQUEST: "#fcf3cf", Kind.DECISION: "#f5b7b1"}
DOT_SHAPES = {Kind.FACT: "ellipse", Kind.REQUEST: "parallelogram", Kind.DECISION: "hexagon"}


def _mermaid(graph: Graph) -> str:
    return "\n".join(["flowchart LR", *_mermaid_daemons(graph), *_mermaid_types(graph), *_mermaid_styles(graph)]) + "\n"


def _mermaid_daemons(graph: Graph) -> Iterable[str]:
    for number, (daemon, reducers) in enumerate(graph.daemons.items()):
        yield f'  subgraph d{number}["{daemon}"]'
        yield from (f"    {name}" for name in reducers)
        yield "  end"
    for name in graph.others:
        yield f'  {_id(name)}["{name}"]'


def _mermaid_types(graph: Graph) -> Iterable[str]:
    for node in graph.nodes:
        name, (left, right) = node.payload.event_name, SHAPES[node.payload.kind]
        yield f'  {name}{left}"{name}"{right}'
        if node.emitters:
            yield f"  {' & '.join(map(_id, node.emitters))} --> {name}"
        if node.readers:
            yield f"  {name} --> {' & '.join(map(_id, node.readers))}"


def _mermaid_styles(graph: Graph) -> Iterable[str]:
    for kind, colour in COLOURS.items():
        names = ",".join(node.payload.event_name for node in graph.nodes if node.payload.kind is kind)
        yield f"  classDef {kind.value} fill:{colour},stroke:#555,color:#111"
        if names:
            yield f"  class {names} {kind.value}"


def _id(name: str) -> str:
    return name.replace(" ", "_")


def _dot(graph: Graph) -> str:
    lines = ["digraph events {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    for number, (daemon, reducers) in enumerate(graph.daemons.items()):
        names = " ".join(f'"{name}";' for name in reducers)
        lines.append(f'  subgraph cluster_{number} {{ label="{daemon}"; node [shape=box]; {names} }}')
    for node in graph.nodes:
        name, kind = node.payload.event_name, node.payload.kind
        lines.append(f'  "{name}" [shape={DOT_SHAPES[kind]}, style=filled, fillcolor="{COLOURS[kind]}"];')
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
