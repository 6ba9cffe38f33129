"""The evaluator's opponents: champion, recent snapshot, built-in players and anchors of the league."""

from driving import KEY, NEW, OLD, DrivenWorker, rated, run_settings
from leagues import model
from scenario_events import promoted

from app.core import Elo
from app.events import CheckpointAdded, CheckpointRetired, EvaluationRequested
from app.runtime.work import Evaluator

WITH_HEURISTIC = "connect_four_2p"


def added(step: int, elo: float) -> CheckpointAdded:
    return CheckpointAdded(
        model=model(step), parent=None, step=step, elo=Elo(elo), elo_stderr=15.0, games=200, roles=("anchor",)
    )


def asked(purpose: str = "rating", seed: int = 1) -> EvaluationRequested:
    return EvaluationRequested(purpose=purpose, model=NEW, step=9, seed=seed)


def evaluator(key: str = KEY, members: int = 5) -> DrivenWorker:
    """Return one with a champion and some members of the league."""
    worker = DrivenWorker(Evaluator, run_settings(key))
    worker.feed(promoted(OLD), key)
    for step in range(members):
        worker.feed(added(step, 100.0 * step), key)
    return worker


def names(worker: DrivenWorker) -> list[str]:
    (job,) = worker.jobs()
    return [opponent.name for opponent in job.context["opponents"]]


def anchors_for(seed: int) -> list[str]:
    worker = evaluator()
    worker.feed(asked(seed=seed))
    (job,) = worker.jobs()
    return [one.model for one in job.context["opponents"] if one.name.startswith("anchor")]


def played(job, scores: dict[str, float], games: int = 100) -> dict:
    """Return what the job comes to, by these scores."""
    results = []
    for opponent in job.context["opponents"]:
        shown = rated().results[0].model_copy(update={"opponent": opponent.name, "opponent_model": opponent.model})
        won = round(scores[opponent.name] * games)
        counted = {"games": games, "wins": won, "losses": games - won, "rotations": (0, 0, games // 2, 0, 0)}
        score = shown.score.of(won, games)
        results.append({**shown.model_dump(), **counted, "distinct_games": games, "score": score})
    return {"results": results, "lost_games": 0, "seconds": 1.0}


def test_a_rating_gauntlet_has_two_anchors_of_the_league():
    worker = evaluator()
    worker.feed(asked())
    assert names(worker) == ["random", "champion", "anchor_1", "anchor_2"]
    (job,) = worker.jobs()
    assert [opponent.games for opponent in job.context["opponents"]] == [200, 100, 50, 50]


def test_a_gate_is_played_against_the_champion_only():
    worker = evaluator(WITH_HEURISTIC)
    worker.feed(asked("gate"), WITH_HEURISTIC)
    assert names(worker) == ["champion"]


def test_the_request_decides_which_anchors():
    assert anchors_for(3) == anchors_for(3)
    found = {anchor for seed in range(30) for anchor in anchors_for(seed)}
    assert found == {model(step) for step in range(5)}


def test_who_has_left_the_league_is_no_anchor():
    worker = evaluator(members=1)
    worker.feed(CheckpointRetired(model=model(0), step=0, reason="expired"))
    worker.feed(asked())
    assert names(worker) == ["random", "champion"]


def test_the_champion_is_not_played_twice():
    worker = evaluator(members=0)
    worker.feed(added(0, 0.0).model_copy(update={"model": OLD}))
    worker.feed(asked())
    assert names(worker) == ["random", "champion"]


def test_an_unrated_opponent_says_nothing_of_the_rating():
    worker = evaluator(WITH_HEURISTIC, members=1)
    worker.feed(asked(), WITH_HEURISTIC)
    (job,) = worker.jobs()
    scores = {"random": 0.9, "heuristic": 0.1, "champion": 0.5, "anchor_1": 0.9}
    (completed,) = worker.worker.completed(job, played(job, scores))
    elos = {match.opponent: match.opponent_elo for match in completed.results}
    assert (elos["heuristic"], elos["random"], elos["anchor_1"]) == (None, 0.0, 0.0)
    (other,) = worker.worker.completed(job, played(job, {**scores, "heuristic": 0.9}))
    assert completed.elo == other.elo
    (stronger,) = worker.worker.completed(job, played(job, {**scores, "anchor_1": 0.99}))
    assert stronger.elo > completed.elo
