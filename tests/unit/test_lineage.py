"""Lineage: the current model, its predecessors, and its candidate successor."""

import pytest
from builders import rejected, rolled_back, training_failed, training_of, unrated
from driving import KEY, NEW, OLD, distributed, gated, promoted, trained

from flyball.app.controllers import REMEMBERED, Lineage
from flyball.app.controllers.lineage import Champion, DistributedModel
from flyball.app.events import (
    AgentRating,
    EloUpdated,
    ModelRolledBack,
    TrainingCompleted,
    TrainingRequested,
)

OLDEST, STRANGER = "c" * 64, "d" * 64
REQUEST = training_of()
REQUEST = TrainingRequested(base_model=OLD, shards=(), step=0, seed=1, learning_rate=1e-3, epochs=1)


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


def back(model: str = OLD, to_model: str = OLDEST, step: int = 0) -> ModelRolledBack:
    return rolled_back(model, to_model, step)


def models(lineage: Lineage) -> list[str]:
    return [champion.model for champion in lineage.champions]


class TestCurrent:
    def test_promotion_makes_a_model_current(self, after, settled):
        lineage = after(settled, promoted(NEW, elo=70.0, step=2))
        assert lineage.current == Champion(model=NEW, step=2, elo=70.0, elo_stderr=20, root=NEW)
        assert models(lineage) == [OLDEST, OLD, NEW]
        assert models(after(settled, promoted(OLDEST))) == [OLD, OLDEST], "an earlier champion moves to the end"
        hashes = [f"{number:064x}" for number in range(REMEMBERED + 3)]
        assert models(after(Lineage(), *map(promoted, hashes))) == hashes[3:]
        lineage = Lineage()
        assert (lineage.current, lineage.current_model, lineage.playing, lineage.busy) == (None, None, None, False)

    def test_rollback_drops_the_models_after_the_restored_one(self, after, settled):
        lineage = after(settled, promoted(NEW), back(NEW, OLDEST))
        assert lineage.champions == settled.champions[:1]
        assert after(settled, back(OLD, STRANGER, 7)).champions == (Champion(model=STRANGER, step=7, root=STRANGER),), (
            "a forgotten one"
        )
        assert models(after(Lineage(), back(NEW, OLD))) == [OLD], "it is believed where no model is known"

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
    def test_training_ends_with_its_own_result_alone(self, after, settled, candidate, record, training):
        event = record(REQUEST, KEY)
        training = settled.after(event)
        assert training == settled.replace(training=event.id)
        assert after(training, training_failed("an earlier one")) == training
        assert after(training, training_failed(event.id)) == settled
        assert after(training, result(training)) == settled.replace(candidate=NEW) == candidate
        assert after(candidate, rejected()) == settled
        late = result(training)
        rolled_back = after(training, back())
        assert after(rolled_back, late) == rolled_back
        newer = after(training, REQUEST)
        assert after(newer, late) == newer

    def test_candidate_that_cannot_be_rated_is_rated_later(self, after, settled, candidate):
        failed = after(candidate, unrated())
        assert failed == settled.replace(unrated=NEW)
        assert failed.is_trial(NEW)
        assert after(failed, promoted(NEW)).unrated is None

    @pytest.mark.parametrize(
        "event",
        [
            pytest.param(promoted(OLD, elo=1.0, step=9), id="promoted again"),
            pytest.param(back(NEW, OLDEST), id="replaced before"),
            pytest.param(back(OLD, OLD), id="rolled back to itself"),
            pytest.param(rejected(STRANGER), id="another is rejected"),
            pytest.param(unrated(STRANGER), id="another is unrated"),
            pytest.param(unrated(NEW, "gate"), id="gate failed"),
            pytest.param(unrated(NEW, "tournament"), id="tournament failed"),
            pytest.param(gated(1, 2, 3), id="gate goes on"),
        ],
    )
    def test_stale_decisions_and_other_verdicts_change_nothing(self, after, candidate, event):
        assert after(candidate, event) == candidate

    @pytest.mark.parametrize("change", [promoted(NEW), promoted(STRANGER), back()], ids=["it", "another", "rollback"])
    def test_change_of_the_current_model_ends_training_and_candidate(self, after, training, candidate, change):
        for lineage in (training, candidate):
            changed = after(lineage, change)
            assert (changed.training, changed.candidate) == (None, None)


class TestDistribution:
    def test_distributed_model_plays_until_the_next_is_distributed(self, after, settled):
        assert (settled.playing, settled.distributed) == (OLD, DistributedModel(model=OLD, step=1))
        promotion = after(settled, promoted(NEW, step=2))
        assert (promotion.current_model, promotion.playing) == (NEW, OLD)
        assert after(promotion, distributed(NEW, 2)).playing == NEW


class TestBusy:
    def test_training_and_candidate_are_busy(self, after, settled, training, candidate):
        assert not settled.busy
        assert training.busy
        assert candidate.busy
        assert after(training, distributed(OLD)).busy

    @pytest.mark.parametrize("change", [promoted(NEW), back()], ids=["promoted", "rolled back"])
    def test_current_model_is_until_it_is_distributed(self, after, settled, change):
        changed = after(settled, change)
        assert changed.busy
        assert after(changed, distributed(OLD)).busy, "the one before is distributed late"
        assert not after(changed, distributed(changed.current_model)).busy


class TestRatings:
    def test_published_ratings_are_those_of_champions(self, after, settled):
        ratings = (
            AgentRating(agent=OLDEST, elo=10.0, elo_stderr=3.0, games=5, bound=None),
            AgentRating(agent=STRANGER, elo=99.0, elo_stderr=1.0, games=5, bound=None),
        )
        lineage = after(settled, EloUpdated(ratings=ratings))
        assert lineage.champions == (settled.champions[0].replace(elo=10.0, elo_stderr=3.0), settled.champions[1])
        assert lineage.replace(champions=()) == settled.replace(champions=())
        assert after(lineage, back()).current == lineage.champions[0], "a restored champion keeps its rating"


def test_json_of_a_lineage_is_lossless(candidate):
    assert Lineage.from_json(candidate.to_json()) == candidate
