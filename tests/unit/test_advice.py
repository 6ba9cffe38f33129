"""A run that only advises asks for nothing, and its verdicts change nothing."""

import pytest
from driving import KEY, NEW, OLD, OTHER_KEY, promoted, run_settings
from msgspec.structs import replace

from flyball.app.config import BadSettings, RunSettings
from flyball.app.controllers.fold import Fold
from flyball.app.controllers.lifecycle import ModelLifecycleCoordinator
from flyball.app.controllers.state import state_of
from flyball.app.events import (
    EvaluationRequested,
    ModelAdvised,
    ModelPromoted,
    ModelRolledBack,
    RegressionDetected,
    RunConfigured,
    TrainingCompleted,
)
from flyball.daemons.registry import DAEMONS, check_hosted_here, left_to_participants
from flyball.daemons.suitability import check_lasting

REGRESSED = RegressionDetected(
    model=NEW, last_good=OLD, elo_drop=300.0, severity="critical", games=100, opponent="random"
)
TRAINED = TrainingCompleted(
    request_id="runs/log.csv: line 2", model="c" * 64, parent=None, step=7, rows=None, metrics={}, seconds=None
)


def settings(mode: str) -> RunSettings:
    document = run_settings(KEY, OTHER_KEY).model_dump(mode="json")
    for config in document["configs"]:
        config |= {"backend": "external", "bots": {}, "trainer": None, "train_command": None}
    return RunSettings.model_validate(document | {"mode": mode})


def begun(record, mode):
    fold = Fold([ModelLifecycleCoordinator])
    fold.feed([record(RunConfigured(run_id="r", settings=settings(mode).model_dump(mode="json")))])
    fold.feed([record(promoted(OLD), KEY), record(promoted(NEW, step=6), KEY)])
    return fold


def test_governing_run_rolls_back_and_asks_for_a_rating(record):
    outcome = begun(record, "govern").feed([record(REGRESSED, KEY)])
    assert [type(envelope.data) for envelope in outcome.envelopes] == [ModelRolledBack, EvaluationRequested]


def test_advising_run_advises_a_rollback_and_asks_nothing(record):
    fold = begun(record, "advise")
    outcome = fold.feed([record(REGRESSED, KEY)])
    (envelope,) = outcome.envelopes
    assert isinstance(envelope.data, ModelAdvised)
    assert (envelope.data.advice, envelope.data.model, envelope.data.current) == ("roll_back", OLD, NEW)
    assert envelope.type == ModelAdvised.event_type
    fold.feed([record(envelope.data, KEY)])
    assert state_of(fold.states, KEY).lineage.current_model == NEW


def test_advice_has_the_id_of_the_decision(record):
    regressed = record(REGRESSED, KEY)
    decided, advised = (begun(record, mode).feed([regressed]).envelopes[0] for mode in ("govern", "advise"))
    assert decided.id == advised.id


@pytest.mark.parametrize(("source", "candidate"), [("observer@x", "c" * 64), ("training@x", None)])
def test_only_observed_trainings_need_no_request(record, source, candidate):
    fold = begun(record, "advise")
    fold.feed([replace(record(TRAINED, KEY), source=source)])
    assert state_of(fold.states, KEY).lineage.candidate == candidate


def test_observed_promotion_of_unrated_model_has_no_rating(record):
    fold = begun(record, "advise")
    evidence = promoted(OLD).evidence.replace(games=0)
    data = ModelPromoted(model="c" * 64, previous=NEW, step=7, elo=0.0, evidence=evidence)
    fold.feed([replace(record(data, KEY), source="observer@x")])
    champion = state_of(fold.states, KEY).lineage.current
    assert (champion.model, champion.elo, champion.root) == ("c" * 64, None, state_of(fold.states, KEY).lineage.root)


def test_advising_run_hosts_no_daemon_with_jobs():
    left = left_to_participants(settings("advise"))
    assert left == {name for name, spec in DAEMONS.items() if spec.worker}
    with pytest.raises(BadSettings, match="only advises"):
        check_hosted_here("training", settings("advise"))


def test_mode_of_a_run_folder_lasts():
    with pytest.raises(BadSettings, match="mode"):
        check_lasting([settings("advise")], settings("govern"))
