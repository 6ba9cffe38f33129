"""Lineage of a configuration's models: champions, the candidate, and the distributed model."""

from typing import Self

from flyball.app.core import Elo, EventId, ModelHash, is_observer
from flyball.app.events import (
    EloUpdated,
    EvaluationFailed,
    Event,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    Row,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
)

REMEMBERED = 16
"""Champions that are remembered: a rollback can restore any of them."""


class Champion(Row, frozen=True):
    """A promoted model.

    Attributes:
        elo: its latest published rating; ``None`` without a rating.
        root: the latest of its ancestors, itself included, that an operator made current; ``None``: training alone has
            led to it.
    """

    model: ModelHash
    step: int
    elo: Elo | None = None
    elo_stderr: float = 0.0
    root: ModelHash | None = None


class DistributedModel(Row, frozen=True):
    """The model that workers play."""

    model: ModelHash
    step: int


class Lineage(Row, frozen=True):
    """A configuration's models; all reducers share this record.

    Attributes:
        champions: the latest champions, the current one last.
        training: the request of the training under way.
        candidate: the model trained last, until it is promoted, rejected, or cannot be rated.
        unrated: the latest candidate that could not be rated, until another model is current. It may be rated later.
        distributed: the model distributed last.
    """

    champions: tuple[Champion, ...] = ()
    training: EventId | None = None
    candidate: ModelHash | None = None
    unrated: ModelHash | None = None
    distributed: DistributedModel | None = None

    @property
    def current(self) -> Champion | None:
        """The current model."""
        return self.champions[-1] if self.champions else None

    @property
    def current_model(self) -> ModelHash | None:
        """The hash of the current model."""
        return self.champions[-1].model if self.champions else None

    @property
    def root(self) -> ModelHash | None:
        """The current model's root; see ``Champion``."""
        return self.champions[-1].root if self.champions else None

    @property
    def gain(self) -> float:
        """The current champion's rating over that of the one before, Elo; 0 if one of them has no rating."""
        before, current = (None, None, *(champion.elo for champion in self.champions))[-2:]
        return 0.0 if before is None or current is None else current - before

    def rating(self, elo: float | None, stderr: float | None) -> tuple[float | None, float | None]:
        """Return the current model's rating and its standard error: the Elo of status, report, overview and ``top``.

        Before it is rated, return those of the model rated last, ``elo`` and ``stderr``.
        """
        current = self.current
        return (elo, stderr) if current is None or current.elo is None else (current.elo, current.elo_stderr)

    @property
    def playing(self) -> ModelHash | None:
        """The hash of the model that workers play."""
        return self.distributed.model if self.distributed else None

    @property
    def busy(self) -> bool:
        """True while a training, a candidate's evaluation, or the distribution of the current model is under way."""
        distributing = self.current_model not in (None, self.playing)
        return self.training is not None or self.candidate is not None or distributing

    def is_trial(self, model: str) -> bool:
        """Return whether a model's rating shows what training achieves.

        Only a candidate's does. The current model is rated again if an operator or a rollback made it current. Without
        a current model, every model is a candidate.
        """
        return self.current is None or model in (self.candidate, self.unrated)

    def changes_current(self, data: Payload) -> bool:
        """Return whether an event makes another model current: a promotion or rollback, if not stale or repeated."""
        match data:
            case ModelPromoted(model=model):
                return model != self.current_model
            case ModelRolledBack(to_model=model):
                return data.applies_to(self.current_model) and model != self.current_model
        return False

    def after(self, event: Event[Payload]) -> Self:  # noqa: C901, PLR0912 - one case an event
        """Return the lineage after an event about its configuration."""
        match event.data:
            case TrainingRequested():
                return self.replace(training=event.id)
            case TrainingCompleted(model=model) if is_observer(event.source):  # nothing requested it
                return self.replace(candidate=None if model == self.current_model else model)
            case TrainingFailed(request_id=request) if request == self.training:
                return self.replace(training=None)
            case TrainingCompleted(request_id=request, model=model) if request == self.training:
                return self.replace(training=None, candidate=None if model == self.current_model else model)
            case PromotionRejected(model=model) if model == self.candidate:
                return self.replace(candidate=None)
            case EvaluationFailed(purpose="rating", model=model) if model == self.candidate:
                return self.replace(candidate=None, unrated=model)
            case ModelPromoted(model=model, step=step, elo=elo, evidence=evidence) as data:
                if self.changes_current(data):
                    before = [champion for champion in self.champions if champion.model != model]
                    observed = is_observer(event.source)
                    root = self.root if observed or self.is_trial(model) else model
                    newest = Champion(model=model, step=step, root=root)
                    if evidence.games or not observed:  # without games, nothing is known of an observed model
                        newest = newest.replace(elo=elo, elo_stderr=evidence.elo_stderr)
                    return self.replace(
                        champions=(*before, newest)[-REMEMBERED:], training=None, candidate=None, unrated=None
                    )
            case ModelRolledBack(to_model=model, step=step) as data:
                if self.changes_current(data):
                    models = [champion.model for champion in self.champions]
                    restored = Champion(model=model, step=step, root=model)
                    champions = self.champions[: models.index(model) + 1] if model in models else (restored,)
                    return self.replace(champions=champions, training=None, candidate=None, unrated=None)
            case ModelDistributed(model=model, step=step):
                return self.replace(distributed=DistributedModel(model=model, step=step))
            case EloUpdated(ratings=ratings):
                newer = {rating.agent: rating for rating in ratings}
                rated = [
                    champion.replace(elo=rating.elo, elo_stderr=rating.elo_stderr)
                    if (rating := newer.get(champion.model))
                    else champion
                    for champion in self.champions
                ]
                return self.replace(champions=tuple(rated))
        return self
