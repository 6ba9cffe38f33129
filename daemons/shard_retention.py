"""Which of a configuration's shards may still be trained on, and which can go: no more are kept than trainings need.

Pure: it follows from the journal, as the trigger's window does. A shard that waits for its verdict is on no shelf yet,
so nobody deletes it.
"""

from collections.abc import Iterable
from typing import ClassVar

from app.config import RunSettings
from app.controllers import FeedbackState
from app.controllers.needs import is_usable, latest_shards
from app.core import EventId, ShardKey
from app.events import (
    Event,
    InspectionFailed,
    NodeProbed,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    Row,
    ShardRef,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
)

WINDOWS = 2
"""How many of the trigger's windows are kept: other shards may be inspected before the request that it decided for is
recorded. One that comes later still finds its shards gone: that training fails, and the next is on newer ones."""


class Shelf(Row, frozen=True):
    """One configuration's inspected shards.

    Attributes:
        fit: good enough to be trained on, and not asked for yet; of each model the latest.
        request: the training under way.
        asked: the shards that it is on.
        spent: nobody will train on them any more.
    """

    fit: tuple[ShardRef, ...] = ()
    request: EventId | None = None
    asked: tuple[ShardKey, ...] = ()
    spent: tuple[ShardKey, ...] = ()

    trainings: ClassVar[tuple[type[Payload], ...]] = (TrainingCompleted, TrainingFailed, TrainingRequested)
    """Event types that decide which shards trainings are on."""

    def after(self, event: Event[Payload], settings: RunSettings, state: FeedbackState) -> "Shelf":
        """Return the shelf as an event about the configuration leaves it, which is in the state already."""
        match event.data:
            case QualityScoreUpdated(shard=shard, score=score):
                if is_usable(state, settings, score):
                    return self._with(shard, settings, state)
                return _without(self, [shard.key])
            case QualityDegraded(shard=unfit) | InspectionFailed(shard=unfit) | NodeProbed(shard=unfit):
                return self.refused(unfit)
            case TrainingRequested() as request:
                return self._for_training(event.cause.id, request)
            case TrainingCompleted(request_id=done) | TrainingFailed(request_id=done) if done == self.request:
                return _without(self.replace(request=None, asked=()), self.asked)
        return self

    def refused(self, shard: ShardKey) -> "Shelf":
        """Drop a shard that must not be trained on."""
        return _without(self, [shard])

    def _with(self, shard: ShardRef, settings: RunSettings, state: FeedbackState) -> "Shelf":
        """Put a shard on it; of its model those go that are older than any training reaches back."""
        same = (*(known for known in self.fit if known.model == shard.model), shard)
        kept = latest_shards(state, settings, same, windows=WINDOWS)
        others = tuple(known for known in self.fit if known.model != shard.model)
        fallen = [known.key for known in same if known not in kept]
        wanted = tuple(known for known in self.spent if known != shard.key)  # refused before, under another request
        return _without(self.replace(fit=(*others, *kept), spent=wanted), fallen)

    def _for_training(self, request_id: EventId, request: TrainingRequested) -> "Shelf":
        """Set aside what a training is on; a request before it is void, and so are shards of models left behind."""
        asked = tuple(shard.key for shard in request.shards)
        rest = [shard for shard in self.fit if shard.key not in asked]
        left_behind = [shard.key for shard in rest if shard.model != request.base_model]
        update = {
            "fit": tuple(shard for shard in rest if shard.model == request.base_model),
            "request": request_id,
            "asked": asked,
            "spent": tuple(key for key in self.spent if key not in asked),
        }
        return _without(self.replace(**update), (*self.asked, *left_behind))


def _without(shelf: Shelf, keys: Iterable[ShardKey]) -> Shelf:
    """Let shards go, unless they are wanted all the same: one that was delivered twice was refused once."""
    wanted = {*(shard.key for shard in shelf.fit), *shelf.asked}
    gone = (key for key in keys if key not in wanted)
    return shelf.replace(spent=tuple(dict.fromkeys((*shelf.spent, *gone))))
