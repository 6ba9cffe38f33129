"""Graph of events, as drawn and as shown in ADR/guide/events.md."""

import json
from pathlib import Path

import pytest
from commands import invoke

from flyball.app.events import CATALOGUE, Kind
from flyball.daemons.bootstrap import consumers, emitters
from flyball.daemons.graph import compact, render, whole
from flyball.daemons.registry import DAEMONS

PAGE = Path(__file__).parents[2] / "ADR" / "guide" / "events.md"
BEGIN, END = "<!-- flyball events graph --compact -->\n```mermaid\n", "```\n<!-- end -->"


def test_graphs_are_those_of_the_page_and_the_wiring():
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown == render(compact(), "mermaid"), "put what `flyball events graph --compact` prints into events.md"
    drawn = json.loads(render(whole(), "json"))
    assert [one["name"] for one in drawn["types"]] == [payload.event_name for payload in CATALOGUE]
    for payload, one in zip(CATALOGUE, drawn["types"], strict=True):
        assert set(one["emitters"]) == set(emitters().get(payload, ()))
        assert set(one["readers"]) == set(consumers().get(payload, ()))
        assert one["readers"] or one["nobody_reads_it"]
    hosted = [name for names in drawn["daemons"].values() for name in names]
    assert len(hosted) == len(set(hosted))
    assert {reducer.name for spec in DAEMONS.values() for reducer in spec.reducers} == set(hosted)
    shown = {node.payload for node in compact().nodes}
    assert {payload for payload in CATALOGUE if payload.kind is not Kind.FACT} <= shown
    assert all(node.readers for node in compact().nodes)
    assert whole().others == ["an operator", "broker", "every daemon"]
    assert '  an_operator["an operator"]\n' in render(whole(), "mermaid")


@pytest.mark.parametrize("words", [[], ["--compact"]])
def test_kinds_are_styled_differently(words):
    drawn = {form: invoke("events", "graph", "--format", form, *words).stdout for form in ("mermaid", "dot")}
    for line in (
        'TRAINING_COMPLETED(["TRAINING_COMPLETED"])',
        'EVALUATION_REQUESTED[/"EVALUATION_REQUESTED"/]',
        'MODEL_PROMOTED{{"MODEL_PROMOTED"}}',
        "Trainer --> TRAINING_COMPLETED",
        "EVALUATION_REQUESTED --> Evaluator",
    ):
        assert f"  {line}\n" in drawn["mermaid"]
    assert '"MODEL_PROMOTED" [shape=hexagon' in drawn["dot"]
    assert '"EVALUATION_REQUESTED" -> "Evaluator";' in drawn["dot"]
    assert drawn["dot"].count("{") == drawn["dot"].count("}")
