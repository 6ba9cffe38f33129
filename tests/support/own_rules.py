"""Custom controllers: sound ones, and one for each mistake."""

from flyball import Controller, Emission, Row, Step, events, handles, state_of
from flyball.app.controllers.ownership import SET_BY
from flyball.app.events import AdaptiveParamsChanged


class Seen(Row, frozen=True):
    """The number of evaluations seen."""

    evaluations: int = 0


class Silent(Controller):
    """Could set every knob, and sets none."""

    emits = frozenset({events.HyperparameterUpdated, *SET_BY}) - {AdaptiveParamsChanged}

    @handles(events.ClockTick)
    def ticked(self, rows, event, states):
        return Step()


class Sets(Controller):
    """Base of controllers that set the learning rate after each evaluation."""

    row = Seen
    emits = frozenset({events.HyperparameterUpdated})

    @handles(events.EvaluationCompleted)
    def evaluated(self, rows, event, states):
        row = Seen(evaluations=rows.get(event.subject, Seen()).evaluations + 1)
        return self.done(rows, row, event, state_of(states, event.subject))

    def done(self, rows, row, event, state):
        return Step({event.subject: row}, (Emission(self.decision(state)),))

    def decision(self, state, parameter="learning_rate"):
        before = state.parameter(parameter, self.settings)
        return events.HyperparameterUpdated(parameter=parameter, value=before / 2, previous=before, reason="x")


class Raising(Sets):
    def done(self, rows, row, event, state):
        raise ZeroDivisionError("no such rate")


class WatchesWrongly(Sets):
    def watches(self, rows, states, key):
        raise ZeroDivisionError("no such value")


class Writing(Sets):
    def done(self, rows, row, event, state):
        rows[event.subject] = row


class Remembering(Sets):
    def done(self, rows, row, event, state):
        self.last = row


class RowUndeclared(Sets):
    """Returns rows of a type that the class does not declare."""

    row = Row


class Longer(Seen, frozen=True):
    """A row with more fields than its controller's row type."""

    more: int = 1


class Consuming(Sets):
    """Takes its option out of the options, once and at each event."""

    def __post_init__(self):
        self.options.pop("factor")
        self.options["deep"].clear()

    def decision(self, state, parameter="learning_rate"):
        assert self.options == {"factor": 0.5, "deep": {"x": 1}}
        return super().decision(state, parameter)


def _returning(step):
    """Return a controller that returns ``step(controller, event, state)``."""

    class Returning(Sets):
        def done(self, rows, row, event, state):
            return step(self, event, state)

    return Returning


Forgetful = _returning(lambda self, event, state: None)
Rowless = _returning(lambda self, event, state: Step({event.subject: {"evaluations": 1}}))
Mistyped = _returning(lambda self, event, state: Step({event.subject: Seen(evaluations=1.5)}))
Extending = _returning(lambda self, event, state: Step({event.subject: Longer()}))
Generating = _returning(lambda self, event, state: Step({}, (Emission(self.decision(state)) for _ in range(1))))
Commaless = _returning(lambda self, event, state: Step({}, (Emission(self.decision(state)))))
Bare = _returning(lambda self, event, state: Step({}, (self.decision(state),)))
Elsewhere = _returning(lambda self, event, state: Step({}, (Emission(self.decision(state), subject="no_such_2p"),)))
Undeclared = _returning(
    lambda self, event, state: Step({}, (Emission(events.RegressionCleared(model=event.data.model)),))
)
Meddling = _returning(lambda self, event, state: Step({}, (Emission(self.decision(state, "epochs")),)))
Invalid = _returning(lambda self, event, state: Step({}, (Emission(self.decision(state).replace(value=float("nan"))),)))


class Demanding(Sets):
    def __post_init__(self):
        if self.options["factor"] >= 1:
            raise ValueError("a factor of 1 or more lowers nothing")


class Deaf(Controller):
    emits = frozenset({events.HyperparameterUpdated})


class Emitting(Deaf):
    parameter = frozenset()


class Vague(Sets):
    emits = (events.HyperparameterUpdated,)


class Unsaved(Sets):
    row = dict


class Forging(Sets):
    emits = frozenset({events.HyperparameterUpdated, events.TrainingCompleted})


class Greedy(Sets):
    emits = frozenset({events.HyperparameterUpdated, AdaptiveParamsChanged})


class Promoting(Sets):
    emits = frozenset({events.HyperparameterUpdated, events.ModelPromoted})


class Waiting(Sets):
    @handles(events.EventVoided)
    def voided(self, rows, event, states):
        return Step()


class PromotesAll(Controller):
    """Promotes every model once it is rated."""

    emits = frozenset({events.ModelPromoted, events.PromotionRejected})

    @handles(events.EvaluationCompleted)
    def evaluated(self, rows, event, states):
        data, lineage = event.data, state_of(states, event.subject).lineage
        if data.purpose != "rating" or data.model == lineage.current_model:
            return Step()
        evidence = events.Evidence(
            evaluation_id=event.id,
            statistic="rated",
            value=0.0,
            threshold=0.0,
            games=0,
            elo=data.elo,
            elo_stderr=data.elo_stderr,
        )
        promotion = events.ModelPromoted(
            model=data.model, previous=lineage.current_model, step=data.step, elo=data.elo, evidence=evidence
        )
        return Step({}, (Emission(promotion),))
