"""Lineage: the current model, its predecessors, and its candidate successor."""

import pytest
from driving import KEY, NEW, OLD, distributed, gated, promoted, trained

from app.controllers import REMEMBERED, Lineage
from app.controllers.lineage import Champion, DistributedModel
from app.events import (
    AgentRating,
    EloUpdated,
    EvaluationFailed,
    Evidence,
    ModelRolledBack,
    PromotionRejected,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
)

OLDEST, STRANGER = "c" * 64, "d" * 64
REQUEST = TrainingRequested(base_model=OLD, shards=(), step=0, seed=1, learning_rate=1e-3, epochs=1)
EVIDENCE = Evidence(evaluation_id="e", statistic="x", value=0, threshold=0, games=1, elo=0, elo_stderr=1)


@pytest.fixture
def after(record):
    """Return a function that returns a lineage after payloads: ``after(lineage, *payloads)``."""

    def folded(lineage: Lineage, *payloads) -> Lineage:
        for data in payloads:
            lineage = lineage.after(record(data, KEY))
        return lineage

    return folded


@pytest.fixture
def settled(after) -> Lineage:
    """Return a lineage of two champions, the present one distributed."""
    return after(Lineage(), promoted(OLDEST, step=0), promoted(OLD, step=1), distributed(OLD, 1))


@pytest.fixture
def training(after, settled) -> Lineage:
    """Return the settled lineage with a training under way."""
    return after(settled, REQUEST)


@pytest.fixture
def candidate(after, training) -> Lineage:
    """Return the settled lineage with a candidate, NEW."""
    return after(training, result(training))


def result(lineage: Lineage, model: str = NEW) -> TrainingCompleted:
    return trained(model).replace(request_id=lineage.training)


def failed(request: str | None) -> TrainingFailed:
    return TrainingFailed(request_id=request, reason="error", error="no")


def back(model: str = OLD, to_model: str = OLDEST, step: int = 0) -> ModelRolledBack:
    return ModelRolledBack(from_model=model, to_model=to_model, step=step, reason="x")


def rejected(model: str = NEW) -> PromotionRejected:
    return PromotionRejected(model=model, current=OLD, step=1, evidence=EVIDENCE)


def unrated(model: str = NEW, purpose: str = "rating") -> EvaluationFailed:
    return EvaluationFailed(request_id="e", purpose=purpose, model=model, error="no")


def models(lineage: Lineage) -> list[str]:
    return [champion.model for champion in lineage.champions]


class TestCurrent:
    def test_nothing_is_known_at_first(self):
        lineage = Lineage()
        assert (lineage.current, lineage.current_model, lineage.playing) == (None, None, None)
        assert not lineage.busy

    def test_promotion_makes_a_model_current(self, after, settled):
        lineage = after(settled, promoted(NEW, elo=70.0, step=2))
        assert lineage.current == Champion(model=NEW, step=2, elo=70.0, elo_stderr=20)
        assert models(lineage) == [OLDEST, OLD, NEW]

    def test_promotion_of_an_earlier_champion_moves_it_to_the_end(self, after, settled):
        assert models(after(settled, promoted(OLDEST))) == [OLD, OLDEST]

    def test_repeated_promotion_changes_nothing(self, after, candidate):
        assert after(candidate, promoted(OLD, elo=1.0, step=9)) == candidate

    def test_champions_beyond_those_remembered_are_forgotten(self, after):
        hashes = [f"{number:064x}" for number in range(REMEMBERED + 3)]
        assert models(after(Lineage(), *map(promoted, hashes))) == hashes[3:]

    def test_rollback_drops_the_models_after_the_restored_one(self, after, settled):
        lineage = after(settled, promoted(NEW), back(NEW, OLDEST))
        assert lineage.champions == settled.champions[:1]

    def test_rollback_to_a_forgotten_model_leaves_it_alone(self, after, settled):
        assert after(settled, back(OLD, STRANGER, 7)).champions == (Champion(model=STRANGER, step=7),)

    @pytest.mark.parametrize("stale", [back(NEW, OLDEST), back(OLD, OLD)], ids=["replaced before", "to itself"])
    def test_stale_rollback_changes_nothing(self, after, candidate, stale):
        assert after(candidate, stale) == candidate

    def test_rollback_is_believed_where_no_model_is_known(self, after):
        assert models(after(Lineage(), back(NEW, OLD))) == [OLD]

    @pytest.mark.parametrize(
        ("payload", "changes"),
        [
            (promoted(NEW), True),
            (promoted(OLDEST), True),
            (promoted(OLD), False),
            (back(OLD, OLDEST), True),
            (back(OLD, OLD), False),
            (back(NEW, OLDEST), False),
            (distributed(NEW), False),
        ],
    )
    def test_changes_current_tells_what_makes_another_current(self, after, settled, record, payload, changes):
        assert settled.changes_current(payload) == changes
        assert (settled.after(record(payload, KEY)).current_model != OLD) == changes


class TestCandidate:
    def test_request_is_the_training_under_way(self, settled, record):
        event = record(REQUEST, KEY)
        assert settled.after(event).training == event.id

    def test_its_result_is_the_candidate(self, training, candidate):
        assert candidate == training.replace(training=None, candidate=NEW)

    def test_result_of_an_earlier_training_is_no_candidate(self, after, training):
        late = result(training)
        rolled_back = after(training, back())
        assert after(rolled_back, late) == rolled_back
        newer = after(training, REQUEST)
        assert after(newer, late) == newer

    def test_failure_ends_the_training_under_way(self, after, settled, training):
        assert after(training, failed(training.training)) == settled

    def test_failure_of_an_earlier_training_ends_none(self, after, training):
        assert after(training, failed("an earlier one")) == training

    def test_rejection_ends_the_candidate(self, after, settled, candidate):
        assert after(candidate, rejected()) == settled

    def test_candidate_that_cannot_be_rated_is_rated_later(self, after, settled, candidate):
        failed = after(candidate, unrated())
        assert failed == settled.replace(unrated=NEW)
        assert failed.is_trial(NEW)
        assert after(failed, promoted(NEW)).unrated is None

    @pytest.mark.parametrize(
        "verdict",
        [rejected(STRANGER), unrated(STRANGER), unrated(NEW, "gate"), unrated(NEW, "tournament"), gated(1, 2, 3)],
        ids=["another is rejected", "another is unrated", "gate failed", "tournament failed", "gate goes on"],
    )
    def test_other_verdicts_leave_the_candidate(self, after, candidate, verdict):
        assert after(candidate, verdict) == candidate

    @pytest.mark.parametrize("change", [promoted(NEW), promoted(STRANGER), back()], ids=["it", "another", "rollback"])
    def test_change_of_the_current_model_ends_training_and_candidate(self, after, training, candidate, change):
        for lineage in (training, candidate):
            changed = after(lineage, change)
            assert (changed.training, changed.candidate) == (None, None)


class TestDistribution:
    def test_distributed_model_is_playing(self, after, settled):
        assert (settled.playing, settled.distributed) == (OLD, DistributedModel(model=OLD, step=1))

    def test_it_plays_on_until_the_next_is_distributed(self, after, settled):
        promotion = after(settled, promoted(NEW, step=2))
        assert (promotion.current_model, promotion.playing) == (NEW, OLD)
        assert after(promotion, distributed(NEW, 2)).playing == NEW


class TestBusy:
    def test_settled_lineage_is_not(self, settled):
        assert not settled.busy

    def test_training_and_candidate_are(self, training, candidate):
        assert training.busy
        assert candidate.busy

    @pytest.mark.parametrize("change", [promoted(NEW), back()], ids=["promoted", "rolled back"])
    def test_current_model_is_until_it_is_distributed(self, after, settled, change):
        changed = after(settled, change)
        assert changed.busy
        assert after(changed, distributed(OLD)).busy, "the one before is distributed late"
        assert not after(changed, distributed(changed.current_model)).busy

    def test_distribution_does_not_end_a_training(self, after, training):
        assert after(training, distributed(OLD)).busy


class TestRatings:
    def test_published_ratings_are_those_of_champions(self, after, settled):
        ratings = (
            AgentRating(agent=OLDEST, elo=10.0, elo_stderr=3.0, games=5, bound=None),
            AgentRating(agent=STRANGER, elo=99.0, elo_stderr=1.0, games=5, bound=None),
        )
        lineage = after(settled, EloUpdated(ratings=ratings))
        assert lineage.champions[0] == settled.champions[0].replace(elo=10.0, elo_stderr=3.0)
        assert lineage.champions[1:] == settled.champions[1:]
        assert lineage.replace(champions=()) == settled.replace(champions=())

    def test_restored_champion_keeps_its_rating(self, after, settled):
        rating = AgentRating(agent=OLDEST, elo=10.0, elo_stderr=3.0, games=5, bound=None)
        lineage = after(settled, EloUpdated(ratings=(rating,)), back())
        assert lineage.current == Champion(model=OLDEST, step=0, elo=10.0, elo_stderr=3.0)


def test_json_of_a_lineage_is_lossless(candidate):
    assert Lineage.from_json(candidate.to_json()) == candidate
