"""Backends: their contract, and daemons that know only the names of jobs."""

import re
from pathlib import Path

import pytest
from driving import KEY, OLD, OTHER_KEY, DrivenWorker, played, promoted
from tabular_backend import NAME, TABULAR

from flyball.app.backends import JOBS, POLICY_GRADIENT, SEARCH, UnusableBackend, backend_of, describe, understood
from flyball.app.config import GAMES, PARAMETERS, LanguageSettings, RunSettings
from flyball.app.core import UnknownPlugin
from flyball.app.events import EvaluationRequested, SelfplayRequested, TrainingRequested
from flyball.daemons.contract import check_backend
from flyball.daemons.distribution import Distributor
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.quality_monitor import QualityMonitor
from flyball.daemons.selfplay_worker import SelfplayWorker
from flyball.daemons.training import Trainer

ROOT = Path(__file__).parents[2]
SETTINGS = RunSettings(configs=(GAMES[KEY].replace(backend=NAME), GAMES[OTHER_KEY]))


@pytest.mark.parametrize("name", ["policy_gradient", "search", NAME])
def test_check_of_a_sound_backend_finds_nothing(name: str) -> None:
    assert check_backend(name) == []


def test_check_of_language_finds_nothing() -> None:
    """Check adapters as models, answers as shards and a text game."""
    small = LanguageSettings(teacher="random", lessons=128, base_layers=1, base_width=16, base_heads=1, rank=2)
    assert check_backend("language", GAMES["tic_tac_toe_text_2p"].replace(language=small)) == []


@pytest.mark.slow
def test_check_of_hearts_finds_nothing() -> None:
    """Four seats, float features, and rewards of its own engine."""
    small = {"games_per_request": 8}
    config = GAMES["hearts_4p"].replace(selfplay=GAMES["hearts_4p"].selfplay.replace(**small))
    assert check_backend(POLICY_GRADIENT.name, config) == []


@pytest.mark.parametrize(
    ("name", "where", "what"),
    [
        ("no_such_module:MINE", "describe", "cannot be imported"),
        ("no_such_backend", "describe", "There is no 'no_such_backend' among the flyball backends"),
        ("NO_BACKEND", "describe", "is a dict, not a backend"),
        ("UNDESCRIBED", "describe", "KeyError"),
        ("CROWDED", "describe", "players is 3; tic_tac_toe_2p has 2"),
        ("BOTLESS", "describe", "bots lack 'random'"),
        ("OTHER_RULES", "play", "describe says older"),
        ("CLAIMING", "train", "epochs changes nothing"),
        ("VANISHING", "initialise", "0000"),
        ("NOWHERE", "initialise", "names no job"),
        ("UNSEEDED", "play", "The same spec gave two results"),
        ("SAME", "play", "Another seed gave the same shard"),
        ("REFUSED", "inspect", "two moves in a row"),
        ("UNMEASURED", "train", "no metrics"),
        ("WORDED", "train", "td_error"),
        ("FAILING", "train", "nothing is learned"),
        ("SHORT", "match", "games"),
        ("HOARDING", "distribute", "deletes other models than those in discard"),
    ],
)
def test_check_of_a_broken_backend_names_job_and_fault(name: str, where: str, what: str) -> None:
    found = check_backend(f"broken_backends:{name}" if name.isupper() else name)
    assert [finding.where for finding in found] == [where]
    assert what in found[0].what
    assert found[0].hint or name == "FAILING"


def test_check_says_nothing_of_knobs_that_are_left_out() -> None:
    config = GAMES[KEY].replace(knobs=("learning_rate",))
    assert check_backend("broken_backends:CLAIMING", config) == []


def test_backend_that_is_none_is_refused() -> None:
    with pytest.raises(UnusableBackend, match="is a dict, not a backend"):
        backend_of(GAMES[KEY].replace(backend="broken_backends:NO_BACKEND"))
    with pytest.raises(UnknownPlugin, match="policy_gradint"):
        backend_of(GAMES[KEY].replace(backend="policy_gradint"))


def test_description_of_policy_gradient_is_that_of_the_game() -> None:
    info = describe(GAMES["connect_four_2p"])
    assert (info.players, info.knobs) == (2, frozenset(PARAMETERS))
    assert {"random", "heuristic"} <= set(info.bots)
    assert "connect_four" in info.rules_version


def test_recorded_knobs_are_those_that_the_backend_understands() -> None:
    tabular, ours = understood(SETTINGS).configs
    assert (tabular.knobs, ours.knobs) == (("learning_rate",), PARAMETERS)
    narrowed = SETTINGS.replace(configs=(tabular.replace(knobs=("epochs",)), ours))
    assert understood(narrowed).configs[0].knobs == ()


def functions(worker: DrivenWorker) -> dict[str, str]:
    """Return the job of each configuration that has one."""
    return {job.cause.subject or "": job.function for job in worker.jobs()}


@pytest.mark.parametrize(("base", "job"), [(None, "initialise"), (OLD, "train")])
def test_trainer_runs_the_jobs_of_each_backend(base: str | None, job: str) -> None:
    worker = DrivenWorker(Trainer, SETTINGS)
    for key in (KEY, OTHER_KEY):
        worker.feed(
            TrainingRequested(base_model=base, shards=(), step=0, seed=1, learning_rate=0.1, epochs=1),
            key,  # type: ignore[arg-type]
        )
    assert functions(worker) == {KEY: getattr(TABULAR, job), OTHER_KEY: getattr(SEARCH, job)}


def test_other_workers_run_the_jobs_of_each_backend() -> None:
    request = {"model": OLD, "lineups": (), "games": 2, "seed": 1, "temperature": 1.0, "probe": False}
    rating = {"purpose": "rating", "model": OLD, "step": 0, "seed": 1}
    facts = {
        SelfplayWorker: ("play", [SelfplayRequested(worker="SelfplayWorker@laptop", **request)] * 2),
        QualityMonitor: ("inspect", [played(1), played(2)]),
        Evaluator: ("match", [EvaluationRequested(**rating)] * 2),
        Distributor: ("distribute", [promoted(OLD)] * 2),
    }
    for kind, (job, about) in facts.items():
        worker = DrivenWorker(kind, SETTINGS)
        for key, fact in zip((KEY, OTHER_KEY), about, strict=True):
            worker.feed(fact, key)
        assert functions(worker) == {KEY: getattr(TABULAR, job), OTHER_KEY: getattr(SEARCH, job)}


def test_daemons_and_simulation_name_no_job() -> None:
    jobs = [getattr(POLICY_GRADIENT, name) for name in JOBS]
    sources = [path for folder in ("daemons", "app/simulation") for path in (ROOT / folder).glob("*.py")]
    named = [path.name for path in sources if re.search("|".join(map(re.escape, jobs)), path.read_text())]
    assert named == []


def test_example_of_an_own_backend_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "examples"))
    assert check_backend("own_backend:FRESH", GAMES[KEY].replace(options={"newest": 1})) == []
