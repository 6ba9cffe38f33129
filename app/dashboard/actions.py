"""Actions of an operator: each publishes an event, from whose value the knob's controller continues."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from flyball.app.api.publishing import check_publishable, check_scope, payload_of, publish_on
from flyball.app.api.runs import RunLocation, connected, silent
from flyball.app.api.scenarios import plan_scenario
from flyball.app.core import EventId, FlyballError, derive_id
from flyball.app.dashboard.model import RunModel
from flyball.app.events import (
    ExplorationBoost,
    ModelPromoted,
    Payload,
    RollbackRequested,
    Scope,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
    originate,
)
from flyball.app.scenarios import SCENARIOS
from flyball.app.status.summary import short
from flyball.daemons.clock import SystemClock, boot_id

DEADLINE_S = 10.0
MOST_REASON = 300
"""Most characters of a reason."""

Fields = Mapping[str, str]
_numbers = count()


class BadField(FlyballError):
    """A field of an action's form is missing or wrong."""


@dataclass(frozen=True, slots=True)
class Target:
    """A configuration that an action is about.

    Attributes:
        key: the configuration.
        current: the hash of its current model; ``None`` before the first.
        blocked: whether its training is blocked.
        intensity: its training intensity.
        quality: its quality score; ``None``: unknown.
        models: the models that could be promoted, with training step, Elo and standard error.
    """

    key: str
    current: str | None
    blocked: bool
    intensity: str
    quality: float | None
    models: Mapping[str, tuple[int, float, float]]

    @classmethod
    def of(cls, model: RunModel, key: str) -> "Target":
        """Return a configuration of the run."""
        row, fields, view = model.board.configs[key], model.states.of(key), model.leagues.views.get(key)
        current = row.lineage.current_model
        rated = {name: rating for name, rating in (view.rated if view else {}).items() if name != current}
        return cls(
            key,
            current,
            row.blocked is not None,
            fields["training_intensity"].value,
            fields["quality_score"].value,
            dict(list(rated.items())[-20:][::-1]),  # the latest first
        )


@dataclass(frozen=True, slots=True)
class Action:
    """Something that an operator can do with a configuration.

    Attributes:
        title: on its button.
        effect: what follows, in a sentence.
        draft: returns the event of the form's fields; it may raise ``BadField``.
        possible: whether it makes sense now.
        inputs: names of its fields, beside the reason.
        has_reason: whether the event has a field for the reason; the log has it in any case.
    """

    title: str
    effect: str
    draft: Callable[[Target, Fields], Payload]
    possible: Callable[[Target], bool] = lambda _: True
    inputs: tuple[str, ...] = ()
    has_reason: bool = True


def _number(fields: Fields, name: str, low: float, high: float) -> float:
    try:
        value = float(fields.get(name, ""))
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise BadField(f"{name} is {fields.get(name, '')!r}, not a number from {low:g} to {high:g}.", hint="Go back.")
    return value


def _promote(target: Target, fields: Fields) -> Payload:
    chosen = fields.get("model", "")
    if chosen not in target.models:
        raise BadField(f"{short(chosen)} is no rated model of {target.key} that could be promoted.", hint="Go back.")
    step, elo, stderr = target.models[chosen]
    evidence = {
        "evaluation_id": "operator",
        "statistic": f"operator: {fields['reason']}",
        "value": 0.0,
        "threshold": 0.0,
        "games": 0,
        "elo": elo,
        "elo_stderr": stderr,
    }
    data = {"model": chosen, "previous": target.current, "step": step, "elo": elo, "evidence": evidence}
    return payload_of(ModelPromoted, data)


def _boost(_: Target, fields: Fields) -> Payload:
    multiplier, minutes = _number(fields, "multiplier", 1, 10), _number(fields, "minutes", 1, 10_080)
    data = {"multiplier": multiplier, "lasts_seconds": minutes * 60, "reason": fields["reason"]}
    return payload_of(ExplorationBoost, data)


def _intensity(intensity: str) -> Callable[[Target, Fields], Payload]:
    return lambda target, _: payload_of(
        TrainingIntensityChanged,
        {"intensity": intensity, "previous": target.intensity, "quality_score": target.quality},
    )


ACTIONS: Mapping[str, Action] = {
    "promote": Action(
        "Promote a model",
        "The model becomes current and plays from now on. It is rated again, and rolled back if it plays worse.",
        _promote,
        lambda target: bool(target.models),
        ("model",),
    ),
    "rollback": Action(
        "Roll back",
        "The current model is replaced by the one before it, if there is one.",
        lambda target, fields: payload_of(RollbackRequested, {"model": target.current, "reason": fields["reason"]}),
        lambda target: target.current is not None,
    ),
    "block": Action(
        "Block training",
        "No training begins until an operator lifts the block. Games go on.",
        lambda _, fields: payload_of(TrainingBlockedByQuality, {"reason": fields["reason"]}),
        lambda target: not target.blocked,
    ),
    "unblock": Action(
        "Unblock training",
        "Training goes on, whatever the block was for.",
        lambda _, fields: payload_of(TrainingUnblocked, {"reason": fields["reason"]}),
        lambda target: target.blocked,
    ),
    "boost": Action(
        "Boost exploration",
        "The sampling temperature of self-play is multiplied for a time; 1 lifts a boost.",
        _boost,
        inputs=("multiplier", "minutes"),
    ),
    "pause": Action(
        "Pause training",
        "Training pauses until the quality of data crosses a threshold, or until it is resumed. To stop it for good, "
        "block it.",
        _intensity("paused"),
        lambda target: target.intensity != "paused",
        has_reason=False,
    ),
    "resume": Action(
        "Resume training",
        "Training goes on with normal intensity.",
        _intensity("normal"),
        lambda target: target.intensity == "paused",
        has_reason=False,
    ),
}
"""Actions by the last part of their URL. Scenarios are not among them, because ``plan_scenario`` plans these."""


def reason_of(fields: Fields) -> str:
    """Return the reason in a form. Raises ``BadField``."""
    reason = " ".join(fields.get("reason", "").split())
    if not reason or len(reason) > MOST_REASON:
        raise BadField(f"Give a reason of 1 to {MOST_REASON} characters: it is recorded.", hint="Go back.")
    return reason


def draft(place: RunLocation, name: str, target: Target, fields: Fields) -> tuple[Payload, str]:
    """Return the event of an action, and its effect in words. Raises ``BadField``, ``BadData`` or ``NotReady``."""
    fields = {**fields, "reason": reason_of(fields)}
    if name == "scenario":
        chosen = SCENARIOS.get(fields.get("scenario", ""))
        if chosen is None:
            raise BadField(f"There is no scenario {fields.get('scenario', '')!r}.", hint=f"Of: {', '.join(SCENARIOS)}.")
        plan = plan_scenario(place, chosen.name, target.key if chosen.takes_config else None)
        return plan.trouble, f"{chosen.purpose}. If nothing else is done: {plan.remains}"
    action = ACTIONS[name]
    if not action.possible(target):
        raise BadField(f"{action.title}: not possible for {target.key} as it is now.", hint="Look at its state.")
    return action.draft(target, fields), action.effect


def fresh_id() -> str:
    """Return an id for an event that waits for confirmation. An event that is confirmed twice is recorded once."""
    return derive_id("dashboard", boot_id(), SystemClock().now().isoformat(), next(_numbers))


async def publish(place: RunLocation, payload: Payload, key: str, event_id: str) -> int:
    """Publish a confirmed event, and return its position. Raises the errors of ``check_scope`` and ``publish_on``."""
    check_publishable(type(payload))
    subject = key if payload.scope is Scope.CONFIG else None
    check_scope(place, payload, subject, event_id, silent)
    envelope = originate(payload, event_id=EventId(event_id), time=SystemClock().now(), subject=subject)
    async with connected(place, DEADLINE_S, producer="dashboard") as bus:
        (position,) = await publish_on(bus, [envelope], silent, own_id=False)
    return position
