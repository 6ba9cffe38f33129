"""Opponents of an evaluation: champion, recent snapshot, built-in players, league anchors."""

import pytest
from builders import rolled_back
from driving import KEY, NEW, OLD, DrivenWorker, promoted, rated, run_settings
from leagues import model

from flyball.app.controllers import REMEMBERED
from flyball.app.core import Elo
from flyball.app.events import AgentRating, CheckpointAdded, CheckpointRetired, EloUpdated, EvaluationRequested
from flyball.daemons.evaluation import Evaluator

WITH_HEURISTIC = "connect_four_2p"


def added(step: int, elo: float, *roles: str) -> CheckpointAdded:
    return CheckpointAdded(
        model=model(step), parent=None, step=step, elo=Elo(elo), elo_stderr=15.0, games=200, roles=roles or ("anchor",)
    )


def asked(purpose: str = "rating", seed: int = 1) -> EvaluationRequested:
    return EvaluationRequested(purpose=purpose, model=NEW, step=9, seed=seed)


def evaluator(key: str = KEY, members: int = 5) -> DrivenWorker:
    """Return an evaluator with a champion and some league members."""
    worker = DrivenWorker(Evaluator, run_settings(key))
    worker.feed(promoted(OLD), key)
    for step in range(members):
        worker.feed(added(step, 100.0 * step), key)
    return worker


def opponents(worker: DrivenWorker) -> list:
    (job,) = worker.jobs()
    return list(job.memo["opponents"])


def names(worker: DrivenWorker) -> list[str]:
    return [opponent.name for opponent in opponents(worker)]


def drawn_for(seed: int) -> list[str]:
    worker = evaluator()
    worker.feed(asked(seed=seed))
    return [one.model for one in opponents(worker) if one.name.startswith("member")]


def games(worker: DrivenWorker) -> dict[str, int]:
    return {one.name: one.games for one in opponents(worker)}


def lasting(*retired: int) -> DrivenWorker:
    """Return an evaluator with three lasting anchors and no other members; those ``retired`` have left."""
    worker = evaluator(members=0)
    for step in range(3):
        worker.feed(added(step, 400.0 * step + 400, "lasting"))
    for step in retired:
        worker.feed(CheckpointRetired(model=model(step), step=step, reason="rolled_back"))
    return worker


def roles(worker: DrivenWorker) -> dict[str, str]:
    return {one.name: one.model for one in opponents(worker) if one.model}


def test_a_rating_gauntlet_has_two_members_of_the_league():
    worker = evaluator()
    worker.feed(asked())
    assert games(worker) == {"random": 20, "member_1": 50, "member_2": 50, "champion": 100}
    assert drawn_for(3) == drawn_for(3), "the request decides which"
    assert {member for seed in range(30) for member in drawn_for(seed)} == {model(step) for step in range(5)}


def test_one_sided_opponent_is_played_few_games():
    """Opponents far below the champion play few games. Only the watchdog's anchor is played in full."""
    worker = lasting()
    worker.feed(CheckpointAdded.model_validate(added(3, 1700.0).model_dump() | {"model": OLD}))
    worker.feed(EloUpdated(ratings=(AgentRating(agent=OLD, elo=Elo(1700.0), elo_stderr=15.0, games=200, bound=None),)))
    worker.feed(asked())
    assert games(worker) == {"random": 20, "anchor_1": 100, "anchor_2": 20, "member_1": 20, "champion": 100}


@pytest.mark.parametrize(
    ("retired", "played"), [((), {"anchor_1": 2, "anchor_2": 1, "member_1": 0}), ((2,), {"anchor_1": 1, "anchor_2": 0})]
)
def test_the_two_newest_lasting_anchors_are_played_by_everybody(retired, played):
    worker = lasting(*retired)
    worker.feed(asked())
    assert roles(worker) == {name: model(step) for name, step in played.items()} | {"champion": OLD}


def test_anchor_keeps_its_role_as_champion_and_skips_itself():
    worker = lasting()
    worker.feed(promoted(model(2)))
    worker.feed(asked())
    assert roles(worker) == {"anchor_1": model(2), "anchor_2": model(1), "member_1": model(0), "recent": OLD}
    (job,) = worker.jobs()
    worker.feed(rated().replace(request_id=job.id))
    worker.feed(asked().replace(model=model(2)))
    assert roles(worker) == {"anchor_2": model(1), "member_1": model(0), "recent": OLD}


def test_a_gate_is_played_against_the_champion_only():
    worker = evaluator(WITH_HEURISTIC)
    worker.feed(asked("gate"), WITH_HEURISTIC)
    assert names(worker) == ["champion"]


def test_the_recent_snapshot_is_the_sixth_last_promoted_model():
    worker = evaluator(members=0)
    for step in range(REMEMBERED):
        worker.feed(promoted(model(step)))
    worker.feed(asked())
    assert roles(worker) == {"champion": model(REMEMBERED - 1), "recent": model(REMEMBERED - 6)}


@pytest.mark.parametrize("target", [0, 3, 9, 12])
def test_champion_after_a_rollback_is_the_restored_model(target):
    """The age of the restored model does not matter."""
    worker = DrivenWorker(Evaluator)
    for step in range(REMEMBERED + 3):
        worker.feed(promoted(model(step)))
    worker.feed(rolled_back(model(REMEMBERED + 2), model(target), target))
    worker.feed(asked("gate"))
    assert roles(worker) == {"champion": model(target)}
    assert len(worker.state().lineage.champions) == max(1, target - 2)


def test_champion_without_a_rating_is_an_opponent_to_be_rated():
    worker = evaluator()
    worker.feed(rolled_back(OLD, model(99), 9))
    worker.feed(asked())
    assert names(worker) == ["random", "member_1", "member_2", "champion"]
    (job,) = worker.jobs()
    assert job.memo["published"][model(99)] is None


@pytest.mark.parametrize(
    "fact", [CheckpointRetired(model=model(0), step=0, reason="expired"), added(0, 0.0).replace(model=OLD)]
)
def test_retired_member_and_champion_again_are_no_opponents(fact):
    worker = evaluator(members=int(isinstance(fact, CheckpointRetired)))
    worker.feed(fact)
    worker.feed(asked())
    assert names(worker) == ["random", "champion"]
