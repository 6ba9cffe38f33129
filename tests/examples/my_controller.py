"""A controller of one's own: the learning rate falls along a cosine."""

from math import cos, pi

from flyball import Controller, Emission, Row, Step, events, handles, state_of


class Counted(Row, frozen=True):
    """The number of a configuration's trainings, rejected models included."""

    trainings: int = 0


class Cosine(Controller):
    """Lowers the configured learning rate to ``lowest`` times itself over ``trainings`` trainings."""

    row = Counted
    emits = frozenset({events.HyperparameterUpdated})

    def __post_init__(self):
        """Refuse unusable options before the run starts."""
        assert 0 <= self.options["lowest"] <= 1 <= self.options["trainings"]

    @handles(events.TrainingCompleted)
    def trained(self, rows, event, states):
        """Set the learning rate of the next training."""
        key, most, lowest = event.subject, self.options["trainings"], self.options["lowest"]
        if event.data.step == 0:  # the first model is made, not trained
            return Step()
        row = Counted(trainings=rows.get(key, Counted()).trainings + 1)
        share = lowest + (1 - lowest) * (1 + cos(pi * min(1, row.trainings / most))) / 2
        rate = share * self.settings.config(key).learning_rate
        before = state_of(states, key).parameter("learning_rate", self.settings)
        reason = f"{share:.2%} of the configured rate after training {row.trainings}"
        decision = events.HyperparameterUpdated(parameter="learning_rate", value=rate, previous=before, reason=reason)
        return Step({key: row}, (Emission(decision),))
