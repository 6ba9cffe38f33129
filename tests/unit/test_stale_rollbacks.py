"""Rollbacks from models that are no longer current change nothing."""

import pytest
from driving import KEY, NEW, OLD, OTHER_KEY, distributed, promoted, run_settings
from scenario_events import asked

from flyball.app.config import RunSettings
from flyball.app.controllers.fold import Fold
from flyball.app.events import ModelPromoted, ModelRolledBack, RunConfigured
from flyball.app.job_specs import JobContext
from flyball.app.scenarios import views_of
from flyball.app.status.configs import ConfigRow, fold_config
from flyball.app.status.league import LeagueView
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.registry import DAEMONS

SPECS = [spec for spec in DAEMONS.values() if ModelRolledBack in spec.reads]
IDENTITY = WorkerIdentity("x@laptop", "laptop", JobContext(store="store"))
SETTINGS: RunSettings = run_settings(KEY, OTHER_KEY)
STALE = ModelRolledBack(from_model=OLD, to_model="d" * 64, step=0, reason="late")
BACK = ModelRolledBack(from_model=NEW, to_model=OLD, step=5, reason="worse")


@pytest.fixture
def history(record):
    """Return earlier events, after which NEW is current."""
    configured = record(RunConfigured(run_id="r", settings=SETTINGS.model_dump(mode="json")))
    return [configured, *(record(data, KEY) for data in (promoted(OLD), promoted(NEW, step=6), distributed(NEW, 6)))]


def test_readers_of_rollbacks_read_promotions_too():
    assert len(SPECS) == 9
    assert all(ModelPromoted in spec.reads for spec in SPECS)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a restart"])
def test_stale_rollback_is_given_to_no_reducer(record, history, spec, restarted):
    fold = Fold(spec.factories(IDENTITY))
    requests = [record(asked(IDENTITY.name, NEW), key) for key in (KEY, OTHER_KEY)]
    saved = fold.feed([*history, *requests]).saved()
    if restarted:
        fold = Fold(spec.factories(IDENTITY), saved)
    outcome = fold.feed([record(STALE, KEY)])
    assert (outcome.conclusions, outcome.changed) == ([], {})

    assert fold.feed([record(BACK, KEY)]).changed
    assert fold.feed([record(BACK, KEY)]).changed == {}, "repeated, it counts once"
    assert fold.feed([record(BACK, OTHER_KEY)]).changed, "nothing is known to be current there: it is believed"


@pytest.mark.parametrize(("back", "current"), [(STALE, NEW), (BACK, OLD)])
def test_stale_rollback_is_shown_nowhere(record, history, back, current):
    events = [*history[1:], record(back, KEY)]
    row, league = ConfigRow(key=KEY, since_us=0), LeagueView()
    for event in events:
        row = fold_config(row, event)
        league.take(event, SETTINGS)
    assert row.model == league.league.champion == current
    assert views_of(SETTINGS, events)[KEY].model == current
