"""Background tournaments: pairings, and precedence of evaluations."""

import asyncio
import itertools
from collections import Counter

import pytest
from builders import unrated
from driving import KEY, NEW, OLD, Driven, DrivenWorker, gauntlet_result, match, promoted, rated, run_settings
from leagues import checkpoint, league_of, model
from rotations import rotations

from flyball.app.config import LeagueSettings, TournamentSettings
from flyball.app.controllers.league_keeper import LeagueKeeper
from flyball.app.core import Elo, FlyballError, Rate, expected_score
from flyball.app.events import CheckpointAdded, EvaluationCompleted, EvaluationRequested, MatchesRequested
from flyball.app.league.tournaments import tournaments
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.jobs import JobRunner

SETTINGS = TournamentSettings(placement=2, games=10, round_robin_every=50)


def ladder(count: int = 6):
    return league_of(*(checkpoint(step, 100.0 * step) for step in range(count)), baselines=("heuristic", "random"))


def pairs(requests) -> list[frozenset[str]]:
    return [frozenset((one.model, other)) for one in requests for other in one.opponents]


def asked(hero: int, *others: str, games: int = 20) -> MatchesRequested:
    return MatchesRequested(purpose="tournament", model=model(hero), step=hero, opponents=others, games=games, seed=1)


def gauntlet() -> EvaluationRequested:
    return EvaluationRequested(purpose="rating", model=NEW, step=99, seed=1)


def added(step: int, elo: float) -> CheckpointAdded:
    return CheckpointAdded(
        model=model(step), parent=None, step=step, elo=Elo(elo), elo_stderr=15.0, games=400, roles=("anchor",)
    )


def evaluator(members: int = 3) -> DrivenWorker:
    worker = DrivenWorker(Evaluator)
    worker.feed(promoted(OLD))
    for step in range(members):
        worker.feed(added(step, 100.0 * step))
    return worker


def told(worker: DrivenWorker, **differences: float):
    """Play the first waiting matches with given differences of strength."""
    job = worker.jobs()[0]
    played = []
    for one in job.memo["opponents"]:
        won = round(one.games * expected_score(differences[one.name]))
        counted = {"games": one.games, "wins": won, "losses": one.games - won, "distinct_games": one.games}
        counted["undecided"] = 0
        scored = {"score": Rate.of(won, one.games), "rotations": rotations(won, 0, one.games - won)}
        shown = match(0.5, one.games, one.name, model=one.model).model_dump()
        played.append({**shown, **counted, **scored})
    return worker.worker.completed(job, gauntlet_result(played), 1.0)


def test_requests_are_placed_near_and_differ():
    newcomer = checkpoint(7, 210.0)
    (request,) = tournaments(ladder().with_agent(newcomer), newcomer, SETTINGS, seed=3)
    assert (request.model, request.step, request.games) == (newcomer.id, 7, 10)
    assert set(request.opponents) == {model(2), model(3)}, "those near in rating"
    newcomer = checkpoint(7, 210.0)
    found = list(tournaments(ladder().with_agent(newcomer), newcomer, SETTINGS.replace(placement=6), seed=3))
    assert [len(request.opponents) for request in found] == [4, 2]
    assert len({request.seed for request in found}) == 2


def test_a_round_robin_leaves_out_bots_and_one_sided_pairs():
    newcomer = checkpoint(100, 210.0)
    league = ladder().with_agent(newcomer)
    found = list(tournaments(league, newcomer, SETTINGS, seed=3))
    met = Counter(pairs(found))
    everybody = {frozenset(pair) for pair in itertools.combinations([agent.id for agent in league.active], 2)}
    far = {frozenset((model(one), model(other))) for one, other in ((0, 4), (0, 5), (1, 5))}
    far |= {frozenset(("random", model(step))) for step in (4, 5)}
    assert set(met) == everybody - far - {frozenset(("heuristic", "random"))}
    assert set(met.values()) == {1}
    assert len({one.seed for one in found}) == len(found) > 5


@pytest.mark.parametrize(("placement", "requests"), [(3, 1), (0, 0)])
def test_the_keeper_has_its_new_members_placed(placement, requests):
    settings = LeagueSettings(tournaments=TournamentSettings(placement=placement))
    keeper = Driven(LeagueKeeper, run_settings().replace(league=settings))
    found = list[MatchesRequested]()
    for step in range(2):
        keeper.feed(rated(40.0 * step, match(0.9, 200), model=model(step), step=step))
        said = keeper.feed(promoted(model(step)).replace(step=step))
        found += [one for one in said if isinstance(one, MatchesRequested)]
    assert [(one.model, one.opponents) for one in found] == [(model(1), (model(0),))] * requests


def test_matches_wait_for_evaluations_even_if_they_are_many():
    worker = evaluator()
    asked_for = [worker.feed(asked(1, model(2))).id for _ in range(40)]
    waiting = asked_for[-16:]  # the oldest are given up
    assert [job.id for job in worker.jobs()] == waiting
    request = worker.feed(gauntlet())
    assert [job.id for job in worker.jobs()] == [request.id, *waiting], "those that are being played stay wanted"
    worker.feed(unrated(request=request.id))
    assert {type(job.request) for job in worker.jobs()} == {MatchesRequested}
    worker.feed(unrated(model(1), "tournament", waiting[-1]))
    assert [job.id for job in worker.jobs()] == waiting[:-1]


def test_a_retest_comes_before_the_matches_of_tournaments():
    worker = evaluator()
    worker.feed(asked(1, model(2)))
    retest = worker.feed(asked(1, "random", games=41).replace(purpose="retest"))
    job, _ = worker.jobs()
    assert job.id == retest.id
    assert [(one.name, one.model, one.games) for one in job.memo["opponents"]] == [("random", None, 42)]
    completed, *_ = told(worker, random=150.0)
    assert (completed.purpose, completed.model) == ("retest", model(1))
    (failed,) = worker.worker.failed(job, FlyballError("no"))
    assert (failed.purpose, failed.model) == ("retest", model(1))


def test_another_configuration_evaluations_come_first_too():
    worker = DrivenWorker(Evaluator, run_settings(KEY, "connect_four_2p"))
    matches = worker.feed(asked(1, model(2)))
    request = worker.feed(gauntlet(), "connect_four_2p")
    assert [job.id for job in worker.jobs()] == [request.id, matches.id]


def test_the_opponents_are_those_asked_for_in_whole_rotations():
    worker = evaluator()
    worker.feed(asked(1, model(2), "random", games=5))
    (job,) = worker.jobs()
    assert [(one.name, one.player, one.games) for one in job.memo["opponents"]] == [
        ("member_1", model(2), 6),
        ("random", "random", 6),
    ]


def test_tournament_changes_ratings_a_little_but_no_members():
    worker = evaluator()
    worker.feed(rated(100.0, match(0.7, 200), model=model(1)))
    worker.feed(rated(200.0, match(0.76, 200), model=model(2)))
    worker.feed(rated(300.0, match(0.85, 200), model=NEW))
    before = worker.rows[KEY].pool
    worker.feed(asked(1, model(2), "random"))
    said = told(worker, member_1=200.0, random=200.0)
    assert [one.purpose for one in said if isinstance(one, EvaluationCompleted)] == ["tournament"]
    ratings = {one.agent: one for one in said[1].ratings}
    assert set(ratings) >= {model(1), model(2)}
    assert 160.0 < ratings[model(2)].elo < 200.0, "twenty games say less than the two hundred before them"
    for one in said:
        worker.feed(one.replace(request_id=worker.jobs()[0].id) if one is said[0] else one)
    after = worker.rows[KEY].pool
    assert after.candidates == before.candidates == (NEW,)
    assert after.games() == before.games() + Counter({model(1): 40, model(2): 20, "random": 20})
    assert worker.rows[KEY].pending == ()
    assert worker.rows[KEY].league.agents[model(2)].elo == ratings[model(2)].elo


class Slow:
    def __init__(self) -> None:
        self.running: list[str] = []
        self.end = asyncio.Event()

    async def run(self, function, spec, on_progress=None, deadline_seconds=None):
        self.running.append(spec["model"])
        await self.end.wait()
        raise FlyballError("told to end")


async def test_begun_matches_are_finished_before_an_evaluation():
    worker, engine = evaluator(), Slow()

    async def say(verb, job, payloads) -> None:
        await asyncio.sleep(0)

    runner = JobRunner(engine, 1, say)
    async with asyncio.TaskGroup() as group:
        worker.feed(asked(1, model(2)))
        runner.reconcile(group, worker.worker, worker.jobs())
        await asyncio.sleep(0.01)
        worker.feed(asked(3, model(2)))
        worker.feed(gauntlet())
        runner.reconcile(group, worker.worker, worker.jobs())
        await asyncio.sleep(0.01)
        assert engine.running == [model(1)]
        engine.end.set()
        await asyncio.sleep(0.01)
        engine.end.clear()
        runner.reconcile(group, worker.worker, worker.jobs())
        await asyncio.sleep(0.01)
        assert set(engine.running) == {model(1), NEW}, "then it comes before other matches"
        runner.reconcile(group, worker.worker, ())
