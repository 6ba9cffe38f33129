"""The evaluator's requests: each gets its result, whoever asks meanwhile."""

import pytest
from builders import unrated
from driving import KEY, NEW, OLD, DrivenWorker, promoted, rated

from flyball.app.events import EvaluationCompleted, EvaluationRequested, Event
from flyball.daemons.evaluation import Evaluator


def asked(model: str, purpose: str = "rating") -> EvaluationRequested:
    return EvaluationRequested(purpose=purpose, model=model, step=1, seed=1)


@pytest.fixture
def evaluator() -> DrivenWorker:
    return DrivenWorker(Evaluator)


def wanted(evaluator: DrivenWorker) -> list[str]:
    return [job.id for job in evaluator.jobs()]


def completed(request: Event) -> EvaluationCompleted:
    return rated(0, model=request.data.model).replace(request_id=request.id)


def test_second_request_waits_and_displaces_none(evaluator):
    evaluator.feed(promoted(OLD))
    gate, rating = evaluator.feed(asked(NEW, "gate")), evaluator.feed(asked(OLD))
    assert wanted(evaluator) == [gate.id, rating.id]
    evaluator.feed(completed(rating))
    assert wanted(evaluator) == [gate.id]
    evaluator.feed(unrated(NEW, "gate", gate.id))
    assert wanted(evaluator) == []
    assert evaluator.rows[KEY].cause is None


def test_repeated_result_changes_nothing(evaluator):
    first = evaluator.feed(asked(NEW))
    evaluator.feed(completed(first))
    second = evaluator.feed(asked(OLD))
    evaluator.feed(completed(first))
    assert wanted(evaluator) == [second.id]


def test_gate_without_two_models_is_dropped(evaluator):
    evaluator.feed(asked(NEW, "gate"))
    assert wanted(evaluator) == [], "there is no champion yet"
    evaluator.feed(promoted(OLD))
    gate, rating = evaluator.feed(asked(NEW, "gate")), evaluator.feed(asked(NEW))
    assert wanted(evaluator) == [gate.id, rating.id]
    evaluator.feed(promoted(NEW))
    assert wanted(evaluator) == [rating.id], "the candidate was promoted by somebody else"
