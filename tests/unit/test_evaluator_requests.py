"""The evaluator's requests: each gets its result, whoever asks meanwhile."""

from driving import KEY, NEW, OLD, promoted, rated, run_settings

from app.controllers.fold import Fold
from app.events import EvaluationCompleted, EvaluationFailed, EvaluationRequested, Event, Payload, RunConfigured
from daemons.evaluation import Evaluator
from daemons.jobs import Place


def asked(model: str, purpose: str = "rating") -> EvaluationRequested:
    return EvaluationRequested(purpose=purpose, model=model, step=1, seed=1)


class Driven:
    """An evaluator fed with recorded events."""

    def __init__(self, record) -> None:
        self.evaluator = Evaluator(run_settings(), Place("evaluation@laptop", "laptop", "/nowhere"))
        self.fold, self.record = Fold((lambda _: self.evaluator,)), record
        settings = run_settings().model_dump(mode="json")
        self.fold.feed([record(RunConfigured(run_id="run", settings=settings))])

    def feed(self, data: Payload) -> Event:
        event = self.record(data, KEY)
        self.fold.feed([event])
        return event

    def wanted(self) -> list[str]:
        return [job.id for job in self.evaluator.jobs(self.fold.rows("Evaluator"))]


def completed(request: Event) -> EvaluationCompleted:
    return rated(0, model=request.data.model).replace(request_id=request.id)


def test_a_second_request_waits_and_displaces_none(record):
    driven = Driven(record)
    driven.feed(promoted(OLD))
    gate, rating = driven.feed(asked(NEW, "gate")), driven.feed(asked(OLD))
    assert driven.wanted() == [gate.id, rating.id]
    driven.feed(completed(rating))
    assert driven.wanted() == [gate.id]
    driven.feed(EvaluationFailed(request_id=gate.id, purpose="gate", model=NEW, error="no"))
    assert driven.wanted() == []
    assert driven.fold.rows("Evaluator")[KEY].cause is None


def test_a_result_told_twice_changes_nothing(record):
    driven = Driven(record)
    first = driven.feed(asked(NEW))
    driven.feed(completed(first))
    second = driven.feed(asked(OLD))
    driven.feed(completed(first))
    assert driven.wanted() == [second.id]


def test_a_gate_at_which_nobody_stands_is_dropped(record):
    driven = Driven(record)
    driven.feed(asked(NEW, "gate"))
    assert driven.wanted() == [], "there is no champion yet"
    driven.feed(promoted(OLD))
    gate, rating = driven.feed(asked(NEW, "gate")), driven.feed(asked(NEW))
    assert driven.wanted() == [gate.id, rating.id]
    driven.feed(promoted(NEW))
    assert driven.wanted() == [rating.id], "the candidate was promoted by somebody else"
