"""Properties of every reducer, for any events in any order."""

import pytest
from generated_run import generated, hasty
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from random_histories import CONFIGS, CONFIGURED, SETTINGS, histories

from flyball.app.config import GAMES, RunSettings
from flyball.app.controllers.fold import SETTINGS_KEY, Fold, Outcome
from flyball.app.events import Event, Row, RunConfigured, originate
from flyball.app.events.envelope import EPOCH
from flyball.app.job_specs import JobContext
from flyball.app.replay.replaying import controllers
from flyball.daemons.jobs import Worker, WorkerIdentity
from flyball.daemons.registry import DAEMONS

IDENTITY = WorkerIdentity(name=SETTINGS.selfplay_workers[0], node="laptop", context=JobContext(store="store"))
SPECS = [spec for spec in DAEMONS.values() if spec.hosted]


def _saved(outcome: Outcome) -> dict[tuple[str, str], bytes]:
    """Return the saved rows in reverse order."""
    return {key: row for key, row in reversed(outcome.saved().items()) if row is not None}


def _texts(rows: dict[str, Row]) -> dict[str, str]:
    """Return rows as JSON. As JSON, 1 and 1.0 differ, though they are equal."""
    return {key: row.to_json() for key, row in rows.items()}


def test_the_rows_of_a_run_are_written_again_as_they_were_read():
    fold = Fold(controllers())
    fold.feed(generated(4000, seed=3, settings=hasty(), trouble=10))
    for name, rows in fold.tables().items():
        assert rows, name
        again = {key: type(row).from_json(row.to_json()) for key, row in rows.items()}
        assert _texts(again) == _texts(rows)
        assert again == rows


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_killed_anywhere_it_comes_to_the_same_conclusions(spec, data):
    """Each conclusion has its own id and names its cause. Wanted jobs follow from saved rows."""
    events = data.draw(histories(spec.reads))
    cut = data.draw(st.integers(0, len(events)))
    whole = Fold(spec.factories(IDENTITY))
    outcome = whole.feed(events)
    conclusions = outcome.envelopes

    first = Fold(spec.factories(IDENTITY))
    before = first.feed(events[:cut])
    resumed = Fold(spec.factories(IDENTITY), _saved(before))
    after = resumed.feed(events[cut:])

    assert before.envelopes + after.envelopes == conclusions
    for reducer in whole.reducers:
        assert resumed.rows(reducer.name) == whole.rows(reducer.name)
        assert _texts(resumed.rows(reducer.name)) == _texts(whole.rows(reducer.name))

    assert len({envelope.id for envelope in conclusions}) == len(conclusions)
    assert {envelope.causationid for envelope in conclusions} <= {event.id for event in events}
    if spec.worker:
        again = Fold(spec.factories(IDENTITY), _saved(outcome))
        worker, restarted = _worker(whole), _worker(again)
        wanted = list(worker.jobs(whole.rows(worker.name), whole.states))
        assert list(restarted.jobs(again.rows(worker.name), again.states)) == wanted
        assert len({job.id for job in wanted}) == len(wanted)


def _worker(fold: Fold) -> Worker:
    return next(one for one in fold.reducers if isinstance(one, Worker))


def test_later_settings_rebuild_the_reducers():
    fold = Fold(DAEMONS["training_trigger"].factories(IDENTITY))
    more = RunSettings(configs=(*CONFIGS, GAMES["hex7_2p"]))
    events = [
        Event(originate(data, event_id=f"e{n}", time=EPOCH), n, 0, "broker@laptop")
        for n, data in enumerate((CONFIGURED, RunConfigured(run_id="run", settings=more.model_dump(mode="json"))), 1)
    ]
    outcome = fold.feed(events)
    assert [envelope.subject for envelope in outcome.envelopes] == [config.key for config in more.configs]
    assert outcome.changed[SETTINGS_KEY] == more


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_removed_configuration_is_left_alone(spec, data):
    fewer = RunConfigured(run_id="run", settings=RunSettings(configs=CONFIGS[:1]).model_dump(mode="json"))
    before, after = data.draw(histories(spec.reads)), data.draw(histories(spec.reads))
    last = before[-1].sequence
    change = Event(originate(fewer, event_id="fewer", time=EPOCH), last + 1, before[-1].recorded_us, "broker@laptop")
    fold = Fold(spec.factories(IDENTITY))
    fold.feed([*before, change])
    envelopes = fold.feed(after[1:]).envelopes
    assert all(envelope.subject in (None, CONFIGS[0].key) for envelope in envelopes)
