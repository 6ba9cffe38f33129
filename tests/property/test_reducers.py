"""What holds for every reducer, whatever events come in whatever order."""

from typing import Any

import pytest
from event_strategies import of_model
from hypothesis import given
from hypothesis import strategies as st

from app.config import GAMES, RunSettings
from app.events import Event, Payload, RunConfigured, Scope, ShardRef, originate
from app.events.envelope import EPOCH
from app.runtime.fold import SETTINGS_KEY, Fold, Outcome
from app.runtime.registry import DAEMONS, DaemonSpec
from app.runtime.work import Place

CONFIGS = (GAMES["tic_tac_toe_2p"], GAMES["connect_four_2p"])
SETTINGS = RunSettings(configs=CONFIGS)
CONFIGURED = RunConfigured(run_id="run", settings=SETTINGS.model_dump(mode="json"))
PLACE = Place(name=SETTINGS.selfplay_workers[0], node="laptop", store="store")
SPECS = [spec for spec in DAEMONS.values() if spec.reducers]
FEW = st.sampled_from(["event-0", "event-1", "event-2", "event-3"])
"""Few ids, so that events meet the rows that earlier ones left."""


@st.composite
def _payloads(draw: st.DrawFn, payload: type[Payload]) -> Payload:
    data = draw(of_model(payload))
    names = [name for name in ("model", "base_model", "current", "request_id") if name in payload.model_fields]
    update: dict[str, Any] = {name: draw(FEW) for name in names}
    shard = getattr(data, "shard", None)
    if isinstance(shard, ShardRef):
        update["shard"] = shard.model_copy(update={"model": draw(FEW), "rows": draw(st.integers(1, 20_000))})
    return data.model_copy(update=update)


@st.composite
def _histories(draw: st.DrawFn, spec: DaemonSpec) -> list[Event[Payload]]:
    kinds = sorted(spec.reads - {RunConfigured}, key=lambda payload: payload.event_type)
    payloads = [CONFIGURED, *draw(st.lists(st.sampled_from(kinds).flatmap(_payloads), max_size=12))]
    events = []
    for index, data in enumerate(payloads):
        subject = draw(st.sampled_from(CONFIGS)).key if data.scope is Scope.CONFIG else None
        envelope = originate(data, event_id=f"event-{index}", time=EPOCH, subject=subject)
        events.append(Event(envelope, index + 1, index * 30_000_000, "test@laptop"))
    return events


def _saved(outcome: Outcome, rows: dict[tuple[str, str], bytes]) -> dict[tuple[str, str], bytes]:
    changed = {key: row and row.model_dump_json().encode() for key, row in outcome.changed.items()}
    return {key: row for key, row in (rows | changed).items() if row is not None}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@given(data=st.data())
def test_killed_anywhere_it_comes_to_the_same_conclusions(spec, data):
    events = data.draw(_histories(spec))
    cut = data.draw(st.integers(0, len(events)))
    whole = Fold(spec.factories(PLACE))
    conclusions = whole.feed(events).envelopes

    first = Fold(spec.factories(PLACE))
    before = first.feed(events[:cut])
    resumed = Fold(spec.factories(PLACE), _saved(before, {}))
    after = resumed.feed(events[cut:])

    assert before.envelopes + after.envelopes == conclusions
    for reducer in whole.reducers:
        assert resumed.rows(reducer.name) == whole.rows(reducer.name)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@given(data=st.data())
def test_every_conclusion_has_an_id_of_its_own_and_names_its_cause(spec, data):
    events = data.draw(_histories(spec))
    envelopes = Fold(spec.factories(PLACE)).feed(events).envelopes
    assert len({envelope.id for envelope in envelopes}) == len(envelopes)
    assert {envelope.causationid for envelope in envelopes} <= {event.id for event in events}


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.worker], ids=lambda spec: spec.name)
@given(data=st.data())
def test_the_jobs_wanted_follow_from_the_rows_alone(spec, data):
    fold = Fold(spec.factories(PLACE))
    outcome = fold.feed(data.draw(_histories(spec)))
    again = Fold(spec.factories(PLACE), _saved(outcome, {}))
    (worker,) = fold.reducers
    wanted = list(worker.jobs(fold.rows(worker.name)))
    assert list(again.reducers[0].jobs(again.rows(worker.name))) == wanted
    assert len({job.id for job in wanted}) == len(wanted)


def test_settings_that_come_later_build_the_reducers_anew():
    fold = Fold(DAEMONS["training_trigger"].factories(PLACE))
    more = RunSettings(configs=(*CONFIGS, GAMES["hex7_2p"]))
    events = [
        Event(originate(data, event_id=f"e{n}", time=EPOCH), n, 0, "broker@laptop")
        for n, data in enumerate((CONFIGURED, RunConfigured(run_id="run", settings=more.model_dump(mode="json"))), 1)
    ]
    outcome = fold.feed(events)
    assert [envelope.subject for envelope in outcome.envelopes] == [config.key for config in more.configs]
    assert outcome.changed[SETTINGS_KEY] == more
