"""ModelLifecycleCoordinator: promotion by GSPRT, and rollback. Each rule is tested at its threshold and beside it."""

import pytest
from builders import EVIDENCE, rejected, rolled_back, training_of, unrated
from driving import NEW, OLD, Driven, gated, match, promoted, rated, run_settings, trained

from flyball.app.config import RunSettings
from flyball.app.controllers import ModelLifecycleCoordinator
from flyball.app.events import (
    ClockTick,
    DistributionFailed,
    EvaluationRequested,
    ModelPromoted,
    ModelRolledBack,
    PromotionRejected,
    RegressionDetected,
    RollbackRequested,
)

NARROW = {"elo0": -40.0}
"""A gate that takes several rounds."""

FAILED = unrated(purpose="gate", request="g")
TICK = ClockTick(period_seconds=1)


@pytest.fixture
def lifecycle():
    """Return a coordinator with a narrow gate whose current model is OLD."""
    driven = Driven(ModelLifecycleCoordinator, run_settings(lifecycle=NARROW))
    (promoted,) = driven.feed(trained(OLD, parent=None, step=0), rated(0, model=OLD))
    assert isinstance(promoted, ModelPromoted)
    assert promoted.previous is None
    return driven


@pytest.fixture
def gating(lifecycle):
    candidate(lifecycle)
    return lifecycle


def champions(lifecycle: Driven) -> list[str]:
    return [one.model for one in lifecycle.state().lineage.champions]


def candidate(lifecycle: Driven, model: str = NEW, parent: str = OLD, step: int = 1) -> list:
    return lifecycle.feed(trained(model, parent, step), rated(50, model=model, step=step))


def regression(model: str, severity: str = "severe", last_good: str | None = None) -> RegressionDetected:
    return RegressionDetected(
        model=model, last_good=last_good, elo_drop=60, severity=severity, games=200, opponent="random"
    )


class TestGate:
    def test_decisively_better_is_promoted_decisively_worse_rejected(self, lifecycle):
        (request,) = candidate(lifecycle)
        assert isinstance(request, EvaluationRequested)
        assert (request.purpose, request.model) == ("gate", NEW)
        (promoted,) = lifecycle.feed(gated(70, 0, 30))
        assert isinstance(promoted, ModelPromoted)
        assert (promoted.previous, promoted.evidence.games) == (OLD, 100)
        candidate(lifecycle, "c" * 64, NEW, 2)
        (rejection,) = lifecycle.feed(gated(30, 0, 70, "c" * 64, NEW))
        assert isinstance(rejection, PromotionRejected)
        assert rejection.current == NEW

    def test_a_gate_alone_decides_without_a_gauntlet(self, lifecycle):
        assert lifecycle.feed(trained(NEW, OLD, 1)) == []
        (request,) = lifecycle.feed(gated(50, 0, 50))
        assert (request.purpose, request.model) == ("gate", NEW)
        (promoted,) = lifecycle.feed(gated(70, 0, 30).replace(elo=30.0))
        assert (promoted.previous, promoted.elo, promoted.evidence.games) == (OLD, 30.0, 200)
        assert promoted.evidence.evaluation_id == lifecycle.events[-2].id, "its latest evaluation, before the decision"

    def test_games_of_a_gauntlet_count_in_the_gate(self, lifecycle):
        """Games against the champion are played once: 70 of 100 decide, whoever asked for them."""
        champion = match(0.7, 100, "champion", model=OLD)
        lifecycle.feed(trained(NEW, OLD, 1))
        (promoted,) = lifecycle.feed(rated(50, match(0.9), champion, model=NEW))
        assert (type(promoted), promoted.evidence.games, promoted.elo) == (ModelPromoted, 100, 50)

    def test_gauntlet_rating_outweighs_the_gates(self, lifecycle):
        lifecycle.feed(trained(NEW, OLD, 1))
        (request,) = lifecycle.feed(rated(50, match(0.9), match(0.5, 100, "champion", model=OLD), model=NEW))
        assert request.purpose == "gate"
        (promoted,) = lifecycle.feed(gated(70, 0, 30).replace(elo=-7.0))
        assert (promoted.elo, promoted.evidence.games) == (50, 200)

    def test_first_gate_that_fails_is_repeated(self, lifecycle):
        lifecycle.feed(trained(NEW, OLD, 1))
        (again,) = lifecycle.feed(FAILED)
        assert (again.purpose, again.model) == ("gate", NEW)
        assert lifecycle.feed(FAILED) == [], "pauses from the second failure on"
        (promoted,) = lifecycle.feed(gated(70, 0, 30))
        assert isinstance(promoted, ModelPromoted)

    def test_candidate_that_never_plays_gets_a_rating(self, lifecycle):
        """If it fails, too, the lineage drops the candidate, and training goes on."""
        lifecycle.feed(training_of(model=OLD), trained(NEW, OLD, 1))
        lifecycle.feed(FAILED, FAILED, at=1)
        (again,) = lifecycle.feed(TICK, key=None, at=100)
        assert again.purpose == "gate"
        (rating,) = lifecycle.feed(FAILED, at=101)
        assert (rating.purpose, rating.model) == ("rating", NEW)
        (promoted,) = lifecycle.feed(rated(50, match(0.9), match(0.7, 100, "champion", model=OLD), model=NEW), at=102)
        assert isinstance(promoted, ModelPromoted)

    def test_gated_candidate_of_a_replaced_model_is_refused(self, lifecycle):
        lifecycle.feed(trained(NEW, "d" * 64, 1))
        (rejection,) = lifecycle.feed(gated(90, 0, 10))
        assert rejection.evidence.statistic == "trained from dddddddd, not from the current model"

    def test_undecided_rounds_add_up(self, gating):
        rounds = 0
        while isinstance((said := gating.feed(gated(50, 0, 50)))[0], EvaluationRequested):
            rounds += 1
        assert isinstance(said[0], ModelPromoted)
        assert 2 <= rounds <= 20
        assert said[0].evidence.games == 100 * (rounds + 1)

    def test_undecided_after_2000_games_is_kept_out(self, lifecycle):
        requests = candidate(lifecycle)
        requests += [lifecycle.feed(gated(47, 0, 53))[0] for _ in range(20)]  # -20 Elo: halfway between the bounds
        assert isinstance(requests.pop(), PromotionRejected)
        assert all(isinstance(request, EvaluationRequested) for request in requests)
        assert len({request.seed for request in requests}) == 20, "every round plays other games"

    def test_equal_candidate_is_promoted_after_two_rounds_by_default(self):
        """More rounds would delay the next training, which begins after the verdict."""
        lifecycle = Driven(ModelLifecycleCoordinator)
        lifecycle.feed(trained(OLD, parent=None, step=0), rated(0, model=OLD))
        candidate(lifecycle)
        said = [lifecycle.feed(gated(50, 0, 50))[0] for _ in range(2)]
        assert [type(one) for one in said] == [EvaluationRequested, ModelPromoted]

    @pytest.mark.parametrize(
        ("elo0", "elo1", "better", "worse"),
        [
            (-40.0, 0.0, "not more than 40 Elo worse", "worse"),
            (0.0, 35.0, "better", "not 35 Elo better"),
            (10.0, 50.0, "more than 10 Elo better", "not 50 Elo better"),
            (-40.0, -10.0, "not more than 40 Elo worse", "more than 10 Elo worse"),
        ],
    )
    def test_a_verdict_says_what_was_shown_and_by_how_much(self, elo0, elo1, better, worse):
        gates = {"feedback": {"lifecycle": {"elo0": elo0, "elo1": elo1}}}
        settings = RunSettings.model_validate(run_settings().model_dump() | gates)
        passed = (
            f"gate passed: scored 80% in 100 games (18 of 50 pairs even), {better} (feedback.lifecycle.elo0 = {elo0:g})"
        )
        failed = (
            f"gate failed: scored 20% in 100 games (16 of 50 pairs even), {worse} (feedback.lifecycle.elo1 = {elo1:g})"
        )
        for result, claim in ((gated(80, 0, 20), passed), (gated(20, 0, 80), failed)):
            lifecycle = Driven(ModelLifecycleCoordinator, settings)
            lifecycle.feed(trained(OLD, parent=None, step=0), rated(0, model=OLD))
            candidate(lifecycle)
            (said,) = lifecycle.feed(result)
            assert said.evidence.statistic == f"{claim}, log of the likelihood ratio"
            assert said.evidence.value >= said.evidence.threshold == pytest.approx(2.944, abs=0.001)

    def test_failed_rounds_never_reject_and_do_not_count(self, gating):
        """A store that cannot be written fails every evaluation. The candidate awaits the repair of the store."""
        for at in range(0, 60 * 400, 400):
            said = gating.feed(FAILED, TICK, at=at)
            assert all(isinstance(one, EvaluationRequested) for one in said)
        assert (gating.row().candidate.rounds, gating.state().consecutive_failures) == (0, 0)
        gating.feed(TICK, at=60 * 400)
        (promoted,) = gating.feed(gated(70, 0, 30), at=60 * 400 + 1)
        assert isinstance(promoted, ModelPromoted)

    def test_failures_in_a_row_pause_longer_and_longer(self, lifecycle):
        (first,) = candidate(lifecycle)
        (again,) = lifecycle.feed(FAILED)
        assert again.seed != first.seed
        now = 0.0
        for pause in (10, 20, 40, 80, 160, 300, 300):
            assert lifecycle.feed(FAILED, at=now) == []
            assert lifecycle.feed(TICK, at=now + pause - 1) == []
            now += pause
            (request,) = lifecycle.feed(TICK, at=now)
            assert (request.purpose, request.model) == ("gate", NEW)
            assert lifecycle.feed(TICK, at=now) == []

    def test_repeated_gate_has_its_failure_as_cause(self, gating):
        """A trace goes on through the tick that ends the pause."""
        gating.feed(FAILED, FAILED)
        failure = gating.events[-1]
        (again,) = gating.envelopes(TICK, at=10)
        assert (again.causationid, again.subject) == (failure.id, failure.subject)
        gating.feed(gated(50, 0, 50), at=10)
        (request,) = gating.feed(FAILED, at=11)
        assert isinstance(request, EvaluationRequested), "a played round ends the row of failures"

    def test_second_rating_starts_no_second_gate_evaluation(self, gating):
        """While the gate pauses, a rating requests the next evaluation."""
        assert gating.feed(rated(60, model=NEW, step=1)) == []
        assert gating.row().candidate.elo == 60
        gating.feed(FAILED)
        assert gating.feed(FAILED) == []
        (request,) = gating.feed(rated(70, model=NEW, step=1))
        assert (request.purpose, request.model) == ("gate", NEW)

    def test_a_candidate_of_a_model_that_is_not_current_is_refused(self, lifecycle):
        (rejected,) = candidate(lifecycle, parent="d" * 64)
        assert isinstance(rejected, PromotionRejected)
        assert rejected.evidence.statistic == "trained from dddddddd, not from the current model"

    def test_it_is_pairs_of_games_that_count(self, gating):
        """52 of 100 games prove nothing; two pairs won whole do. In the second result, all other pairs are drawn."""
        (undecided,) = gating.feed(gated(52, 0, 48))
        assert isinstance(undecided, EvaluationRequested)
        (match,) = gated(52, 0, 48, "c" * 64).results
        balanced = match.replace(rotations=(0, 0, 48, 0, 2))
        candidate(gating, "c" * 64, OLD, 2)
        (promoted,) = gating.feed(gated(52, 0, 48, "c" * 64).replace(results=(balanced,)))
        assert isinstance(promoted, ModelPromoted)

    @pytest.mark.parametrize(("distinct", "said"), [(2, EvaluationRequested), (3, ModelPromoted)])
    def test_games_that_are_all_the_same_say_what_one_rotation_says(self, gating, distinct, said):
        """A hundred equal games that are won count as one. Games are equal without openings, deals or temperature."""
        (match,) = gated(100, 0, 0).results
        same = match.replace(distinct_games=distinct)
        assert [type(one) for one in gating.feed(gated(1, 0, 0).replace(results=(same,)))] == [said]

    def test_results_of_other_games_are_left_alone(self, gating):
        strange = match(0.9, 300, "champion", players=3)
        assert not gating.feed(gated(1, 0, 0).replace(results=(strange,))), "another number of players"
        assert not gating.feed(gated(100, 0, 0, "e" * 64)), "another model"

    def test_gate_against_another_than_the_champion_is_repeated(self, gating):
        (request,) = gating.feed(gated(100, 0, 0, champion="d" * 64))
        assert (request.purpose, request.model) == ("gate", NEW)
        (promoted,) = gating.feed(gated(70, 0, 30))
        assert promoted.evidence.games == 100

    @pytest.mark.parametrize(("score", "verdict"), [(0.65, ModelPromoted), (0.35, PromotionRejected)])
    def test_gate_of_three_players_counts_the_score_not_the_wins(self, score, verdict):
        """An equal of three players wins a third of its games. That is no reason to reject it."""
        key = "oh_hell_3p"
        lifecycle = Driven(ModelLifecycleCoordinator, run_settings(key, lifecycle=NARROW))
        lifecycle.feed(trained(OLD, parent=None, step=0), rated(0, model=OLD), key=key)
        lifecycle.feed(trained(NEW, OLD, 1), rated(50, model=NEW), key=key)
        third = match(score, 300, "champion", model=OLD, players=3).replace(wins=100, losses=200)
        (said,) = lifecycle.feed(gated(1, 0, 0).replace(results=(third,)), key=key)
        assert type(said) is verdict
        current = OLD if verdict is PromotionRejected else NEW
        even = match(0.5, 300, "champion", model=current, players=3).replace(wins=100, losses=200)
        lifecycle.feed(trained("c" * 64, current, 2), key=key)
        lifecycle.feed(rated(50, model="c" * 64, step=2), key=key)
        (undecided,) = lifecycle.feed(gated(1, 0, 0, "c" * 64).replace(results=(even,)), key=key)
        assert isinstance(undecided, EvaluationRequested)


class TestRollback:
    @pytest.fixture
    def promoted(self, lifecycle):
        candidate(lifecycle)
        lifecycle.feed(gated(90, 0, 10))
        return lifecycle

    @pytest.mark.parametrize(("severity", "back"), [("minor", 0), ("moderate", 0), ("severe", 1), ("critical", 1)])
    def test_severe_and_critical_regressions_roll_back_once(self, promoted, severity, back):
        said = promoted.feed(regression(OLD, severity), regression(NEW, severity), regression(NEW, severity))
        assert [type(p) for p in said] == [ModelRolledBack, EvaluationRequested] * back
        if back:
            assert (said[0].from_model, said[0].to_model, said[0].step) == (NEW, OLD, 0)

    def test_restored_model_is_rated_again(self, promoted):
        _, request = promoted.feed(regression(NEW))
        assert (request.purpose, request.model, request.step) == ("rating", OLD, 0)
        promoted.feed(trained("c" * 64, OLD, 1), rated(50, model="c" * 64), gated(90, 0, 10, "c" * 64))
        _, again = promoted.feed(regression("c" * 64))
        assert again.seed != request.seed, "other games"

    def test_rollback_restores_the_last_good_model(self, promoted):
        for step, (model, parent) in enumerate((("c" * 64, NEW), ("d" * 64, "c" * 64)), 2):
            candidate(promoted, model, parent, step)
            promoted.feed(gated(90, 0, 10, model, parent))
        rollback, _ = promoted.feed(regression("d" * 64, last_good=NEW))
        assert rollback.to_model == NEW

    def test_the_first_model_has_nothing_before_it(self, lifecycle):
        assert not lifecycle.feed(regression(OLD, "critical"))

    def test_candidate_of_the_replaced_model_is_not_gated(self, promoted):
        promoted.feed(trained("c" * 64, NEW, 2))
        promoted.feed(regression(NEW))
        assert not promoted.feed(rated(500, model="c" * 64, step=2)), "it was dropped"
        (rejection,) = promoted.feed(trained("d" * 64, NEW, 2), rated(500, model="d" * 64, step=2))
        assert isinstance(rejection, PromotionRejected)

    @pytest.mark.parametrize(
        ("damaged", "readable", "back"), [(True, OLD, True), (True, None, False), (False, None, False)]
    )
    def test_lost_model_is_rolled_back_to_one_that_reads(self, promoted, damaged, readable, back):
        about = {"model": NEW, "step": 1, "node": "n", "attempt": 2, "retry_seconds": 60.0, "error": "gone"}
        failed = DistributionFailed(**about, damaged=damaged, readable=readable)
        said = promoted.feed(failed, failed)  # a repeated failure changes nothing
        assert [type(one) for one in said] == [ModelRolledBack, EvaluationRequested] * back
        assert not back or (said[0].from_model, said[0].to_model) == (NEW, OLD)

    def test_an_operator_may_ask_for_it(self, promoted):
        rollback, _ = promoted.feed(RollbackRequested(model=NEW, reason="looks odd"))
        assert rollback.reason == "looks odd"


class TestOthersDecisions:
    """An operator's decisions about the current model are adopted."""

    @pytest.fixture
    def late(self):
        """Return a coordinator whose decisions are recorded late. Its current model is OLD."""
        driven = Driven(ModelLifecycleCoordinator, late=True)
        driven.feed(promoted(OLD, step=0))
        return driven

    @staticmethod
    def promotion(model: str, step: int = 7) -> ModelPromoted:
        return ModelPromoted(model=model, previous=OLD, step=step, elo=90, evidence=EVIDENCE)

    def test_verdicts_by_an_operator_end_a_candidate(self, gating):
        assert not gating.feed(rejected())
        assert not gating.feed(*[gated(80, 0, 20)] * 3)
        candidate(gating)
        gating.feed(FAILED, FAILED, rejected())
        assert gating.feed(TICK, at=1000) == []

    def test_candidate_awaiting_its_verdict_is_not_replaced(self, lifecycle):
        lifecycle.feed(training_of())
        lifecycle.feed(trained(NEW, parent=OLD).replace(request_id=lifecycle.events[-1].id))
        lifecycle.feed(trained("e" * 64, parent=OLD))
        (asked,) = lifecycle.feed(rated(10, model=NEW))
        assert (asked.purpose, asked.model) == ("gate", NEW)

    def test_promotion_by_an_operator_is_adopted_and_rated(self, lifecycle):
        (request,) = lifecycle.feed(self.promotion(NEW))
        assert isinstance(request, EvaluationRequested)
        assert (request.purpose, request.model, request.step) == ("rating", NEW, 7)
        assert champions(lifecycle) == [OLD, NEW]
        rollback, _ = lifecycle.feed(regression(NEW, "critical", last_good=OLD))
        assert (rollback.from_model, rollback.to_model) == (NEW, OLD)

    def test_operators_promotion_ends_candidates_of_the_model_before(self, gating):
        gating.feed(self.promotion("c" * 64))
        assert not gating.feed(gated(90, 0, 10))
        (rejected,) = candidate(gating, "d" * 64, OLD)
        assert isinstance(rejected, PromotionRejected)
        assert rejected.current == "c" * 64

    def test_own_decisions_recorded_late_count_once(self, late):
        """Later decisions rest on earlier ones, recorded or not."""
        candidate(late)
        (promotion,) = late.envelopes(gated(90, 0, 10))
        rollback, request = late.envelopes(regression(NEW))
        assert (rollback.data.from_model, rollback.data.to_model) == (NEW, OLD)
        assert late.record(promotion) == []
        assert champions(late) == [OLD, NEW]
        assert late.record(rollback, request) == []
        assert champions(late) == [OLD]

    def test_rollback_recorded_after_a_promotion_changes_nothing(self, late):
        """An operator's promotion precedes the record of the rollback."""
        late.feed(self.promotion(NEW))
        rollback, _ = late.envelopes(regression(NEW))
        late.feed(self.promotion("c" * 64))
        assert late.record(rollback) == []
        assert champions(late) == [OLD, NEW, "c" * 64]

    def test_rollback_to_a_forgotten_model_is_adopted_too(self, gating):
        """Everybody else follows the journal; a coordinator that did not would refuse every later candidate."""
        (request,) = gating.feed(rolled_back(OLD, "f" * 64, 5))
        assert (request.purpose, request.model, request.step) == ("rating", "f" * 64, 5)
        assert champions(gating) == ["f" * 64]
        (gate,) = candidate(gating, parent="f" * 64, step=6)
        assert gate.purpose == "gate"
