"""Ratings that the evaluator publishes as facts. They follow from all games of its pool together."""

from functools import partial
from itertools import combinations

from builders import training_of, unrated
from chained_ratings import OpponentScore, performance_rating
from driving import KEY, Driven, DrivenWorker, gauntlet_result, match, promoted, run_settings, trained
from independent_games import of_games
from leagues import model

from flyball.app.controllers.fold import SETTINGS_KEY, Fold, written
from flyball.app.controllers.league_keeper import LeagueKeeper
from flyball.app.controllers.loop import MOST_UNRATED
from flyball.app.core import Elo, expected_score
from flyball.app.events import AgentRating, EloUpdated, EvaluationCompleted, EvaluationRequested, Payload
from flyball.app.job_specs import JobContext
from flyball.app.league.audit import audit
from flyball.app.league.ratings import Estimate
from flyball.app.league.totals import PairTotals
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.jobs import WorkerIdentity

GAIN = 50.0
"""Elo that a generation really gains."""

EXPLOIT = 60.0
"""Elo that a generation seems to gain in addition against its six predecessors, which it was trained against."""


GATE_ROUNDS = 2
"""Rounds of a gate between about equal models."""


class Run:
    """An evaluator and a keeper that follow each other's events.

    Their models gain strength with every generation. ``rating_every`` generations have a gauntlet, the others a gate.
    """

    def __init__(self, exploit: float = 0.0, rating_every: int | None = None) -> None:
        self.settings = run_settings()
        self.rating_every = rating_every or MOST_UNRATED
        self.evaluator = DrivenWorker(Evaluator, self.settings)
        self.keeper = Driven(LeagueKeeper, self.settings)
        self.exploit, self.chain = exploit, {"random": 0.0}

    def generation(self, step: int) -> tuple[Payload, ...]:
        """Evaluate and promote a step's model; return the evaluator's events."""
        self.keeper.feed(training_of())
        self.keeper.feed(trained(model(step), None, step).replace(request_id=self.keeper.events[-1].id))
        purposes = ["rating"] if step < 2 or step % self.rating_every == 0 else ["gate"] * GATE_ROUNDS
        for purpose in purposes:
            said = self.evaluated(step, purpose)
            self.tell(*said)
        decision = promoted(model(step)).replace(step=step, elo=said[0].elo)
        self.tell(decision.replace(evidence=decision.evidence.replace(elo_stderr=said[0].elo_stderr)))
        while self.evaluator.jobs():
            self.tell(*self.finished())
        return said

    def round_robin(self, games: int = 400) -> list[PairTotals]:
        """Return games of all members against each other, used by no rating."""
        steps = [agent.step for agent in self.keeper.row().league.checkpoints]
        played = []
        for one, other in combinations(sorted(steps), 2):
            won = self._match(other, "member_1", model(one), games)["wins"]
            played.append(of_games(model(other), model(one), won, 0, games - won))
        return played

    def evaluated(self, step: int, purpose: str = "rating") -> tuple[Payload, ...]:
        request = EvaluationRequested(purpose=purpose, model=model(step), step=step, seed=step)
        self.evaluator.feed(request)
        return self.finished()

    def finished(self) -> tuple[Payload, ...]:
        """Finish the oldest job and return the evaluator's events."""
        job, *_ = self.evaluator.jobs()
        step = job.request.step
        played = [self._match(step, one.name, one.model, one.games) for one in job.memo["opponents"]]
        said = self.evaluator.worker.completed(job, gauntlet_result(played), 1.0)
        return tuple(one.replace(request_id=job.id) if i == 0 else one for i, one in enumerate(said))

    def tell(self, *payloads: Payload) -> None:
        for data in payloads:
            self.evaluator.feed(data)
            for decided in self.keeper.feed(data):
                self.evaluator.feed(decided)

    def truth(self, step: int) -> float:
        return GAIN * step

    def _match(self, step: int, name: str, other: str | None, games: int) -> dict:
        age = 0 if other is None else step - int(other, 16)
        known = 0.0 if other is None else self.truth(int(other, 16))
        looks = self.truth(step) - known + self.exploit * (1 <= age <= 6)
        score = round(games * expected_score(looks)) / games
        return match(score, games, name, model=other).model_dump(exclude={"opponent_elo"}) | {"undecided": 0}


def chained(said: EvaluationCompleted, ratings: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """Return the rating that follows from the opponents' earlier ratings."""
    known = [(ratings.get(match.opponent_model or match.opponent), match) for match in said.results]
    return performance_rating(
        [OpponentScore(Elo(elo), m.score.mean, m.games, error) for (elo, error), m in filter(lambda k: k[0], known)]
    )


def test_models_that_exploit_parents_agree_with_a_round_robin():
    """A chain of ratings overestimates models that exploit their parents; ratings of one fit can be compared.

    Most models have no gauntlet: they are rated by their gate's games against their parent.
    """
    run, chain = Run(EXPLOIT), {"random": (0.0, 0.0)}
    for step in range(41):
        said = run.generation(step)[0]
        chain[model(step)] = chained(said, chain)
        row = run.evaluator.rows[KEY]
        fit = row.pool.ratings(model(step))
        assert len(row.league.checkpoints) > min(step, 3) / 2
        for agent in row.league.checkpoints if said.purpose == "rating" else ():  # lasting anchors, too
            assert abs(agent.elo - fit.rating(agent.id).elo) < 5, agent.step
    assert len(row.league.lasting) >= 2
    assert chain[model(40)][0] > 1.3 * run.truth(40)
    members = run.keeper.row().league.checkpoints
    assert len(members) >= 12
    published = {agent.id: Estimate(agent.elo, agent.elo_stderr) for agent in members}
    found = audit(published, run.round_robin())
    assert found.rms < 30
    assert found.coverage >= 0.85
    assert found.ordered == found.apart > 50


def test_evaluator_after_a_restart_publishes_the_same_bits():
    run = Run(EXPLOIT)
    for step in range(12):
        run.generation(step)
    before = [one.model_dump_json() for one in run.evaluated(12)]
    rows = {(name, key): row for name, rows in run.evaluator.fold.tables().items() for key, row in rows.items()}
    saved = written({**rows, SETTINGS_KEY: run.settings})
    identity = WorkerIdentity("evaluation@laptop", "laptop", JobContext(store="store"))
    run.evaluator.fold = Fold((partial(Evaluator, identity=identity),), saved)
    assert [one.model_dump_json() for one in run.finished()] == before


def test_models_far_above_the_random_bot_are_rated_correctly():
    """Lasting anchors from the random bot on are about 300 Elo apart."""
    run = Run()
    for step in range(41):
        said = run.generation(step)[0]
        assert abs(said.elo - run.truth(step)) < max(3 * said.elo_stderr, 30)
    assert said.elo_stderr < 120
    elos = [agent.elo for agent in run.keeper.row().league.lasting]
    gaps = [high - low for low, high in zip([0.0, *elos], elos, strict=False)]
    assert len(elos) in (5, 6)
    assert all(250 <= gap <= 400 for gap in gaps)


def test_published_ratings_of_others_are_kept_alike_by_all():
    run = Run(EXPLOIT, rating_every=1)
    for step in range(6):
        run.generation(step)
    pool = run.evaluator.rows[KEY].pool
    gate = run.evaluated(6, "gate")
    run.tell(*gate)
    assert [(type(one), [match.opponent for match in one.results]) for one in gate] == [
        (EvaluationCompleted, ["champion"])
    ]
    assert len(run.evaluator.rows[KEY].pool.pairs) == len(pool.pairs) + 1, "the pair of candidate and champion"
    said = run.evaluated(6)
    run.tell(*said)
    assert [type(one) for one in said] == [EvaluationCompleted, EloUpdated]
    told = {one.agent: one.elo for one in said[1].ratings}
    assert model(4) in told
    assert model(6) not in told, "its rating is the evaluation's"
    for row in (run.keeper.row(), run.evaluator.rows[KEY]):
        known = {name: row.league.agents[name].elo for name in told if name in row.league.agents}
        assert known
        assert known == {name: told[name] for name in known}
    for lineage in (run.keeper.state().lineage, run.evaluator.state().lineage):
        assert {one.model: one.elo for one in lineage.champions}[model(4)] == told[model(4)]
    assert {one.id: one.elo for one in run.keeper.row().promoted}[model(4)] == told[model(4)]


def test_rating_that_hardly_changed_is_not_published_again():
    run = Run(rating_every=1)
    for step in range(4):
        run.generation(step)
    before = run.evaluator.rows[KEY].published_ratings(run.evaluator.state().lineage)
    assert model(3) in before
    assert len(run.evaluated(4)) == 1, "as expected: no other rating moved"
    run.exploit = 100.0
    run.evaluator.feed(unrated("d" * 64, request=run.evaluator.jobs()[0].id))
    told = {one.agent: one.elo for one in run.evaluated(4)[1].ratings}
    assert told
    assert all(abs(before[name].elo - elo) >= 1 for name, elo in told.items())


def test_returning_member_is_rated_by_all_its_games():
    """No game of a member is forgotten."""
    run, told, again = Run(rating_every=1), dict[str, AgentRating](), 0
    for step in range(60):
        _, *changed = run.generation(step)
        for rating in (rating for one in changed for rating in one.ratings):
            if before := told.get(rating.agent):
                again += 1
                assert rating.elo_stderr < max(30.0, 1.25 * before.elo_stderr)
                assert abs(rating.elo - before.elo) < 2 * before.elo_stderr
            told[rating.agent] = rating
    assert again > 40
