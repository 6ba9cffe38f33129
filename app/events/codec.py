"""Decode envelopes from bytes, and lift old payloads to current versions.

msgspec decodes the envelope, then the validator of the payload's type decodes ``data``. This takes less than half of
the time that pydantic needs for the whole. If it fails, an old version is lifted, and the models behind the JSON
Schemas decode the event again and explain errors.
"""

from collections.abc import Callable
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, cast

from msgspec import Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import force_setattr
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from flyball.app.core import FlyballError
from flyball.app.events.catalogue import BY_TYPE, CATALOGUE, UnknownEventType, envelope_model, resolve
from flyball.app.events.envelope import EPOCH, LATEST, Envelope, EnvelopeModel
from flyball.app.events.payload import Payload, Scope


class MalformedEvent(FlyballError):
    """Bytes that are not one of our events. ``hint`` names the wrong field."""


@cache
def _envelope_adapter() -> TypeAdapter[EnvelopeModel[Payload]]:
    """Return the models of all event types as one, built on first use because that takes as long as an import."""
    models = (envelope_model(payload) for payload in CATALOGUE)
    return TypeAdapter(Annotated[reduce(or_, models), Field(discriminator="type")])  # type: ignore[arg-type]


class _Identified(Struct):
    id: str


@cache
def _kind(event_type: str) -> tuple[int, bool, Callable[..., Payload]]:
    """Return an event type's version, its scope, and its validator.

    The scope is True for events about a configuration. All three are looked up once, because class attributes cost a
    fifth of a small event's decoding. Raises ``KeyError``.
    """
    payload = BY_TYPE[event_type]
    return payload.dataversion, payload.scope is Scope.CONFIG, payload.__pydantic_validator__.validate_json


_open = Decoder(Envelope[Raw]).decode  # type: ignore[type-var]
_identify = Decoder(_Identified).decode  # skips the other fields


def id_in(body: bytes) -> str | None:
    """Return an event's id without decoding the other fields; ``None`` if malformed."""
    try:
        return _identify(body).id
    except ValueError:
        return None


def decode(body: bytes) -> Envelope[Payload]:
    """Decode an envelope and lift its payload to the current version. Raises ``MalformedEvent`` or ``NoUpcast``."""
    try:
        return _decode_fast(body)
    except (ValueError, KeyError, RecursionError):
        return _decode_slowly(body)


def _decode_fast(body: bytes) -> Envelope[Payload]:
    """Decode a valid envelope of the current version. Raises ``ValueError``, ``KeyError`` or ``RecursionError``."""
    envelope = _open(body)
    dataversion, about_config, validate = _kind(envelope.type)
    if (
        envelope.dataversion != dataversion
        or (envelope.subject is None) is about_config
        or not EPOCH <= envelope.time < LATEST
    ):
        raise ValueError(envelope.type)
    force_setattr(envelope, "data", validate(bytes(envelope.data), strict=True))  # frozen, but not shared yet
    return cast("Envelope[Payload]", envelope)


def _decode_slowly(body: bytes) -> Envelope[Payload]:
    """Decode any envelope. See ``decode``."""
    try:
        model: EnvelopeModel[Payload] = _envelope_adapter().validator.validate_json(_lift_body(body), strict=True)
    except ValidationError as error:
        raise _malformed_event(error) from error
    return model.envelope()


def _lift_body(body: bytes) -> bytes:
    """Lift the payload of an older version; return other bytes unchanged."""
    try:
        raw: dict[str, Any] = from_json(body)
        payload, version, data = BY_TYPE[raw["type"]], raw["dataversion"], raw["data"]
    except (ValueError, KeyError, TypeError):
        return body
    if type(version) is not int or version == payload.dataversion or not isinstance(data, dict):
        return body
    try:
        data = lift(payload.event_type, data, version, payload.dataversion)
    except (LookupError, TypeError, ValueError, AttributeError) as unfit:  # what upcasts raise on wrong data
        message = f"Malformed event: {payload.event_name} of version {version} could not be lifted: {unfit!r}."
        raise MalformedEvent(message, hint="Look at data.") from unfit
    return to_json(raw | {"data": data, "dataversion": payload.dataversion})


def _malformed_event(error: ValidationError) -> MalformedEvent:
    """Return the error for the first problem that a validation found."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "union_tag_invalid":
        name = first["ctx"]["tag"]
        try:
            hint = f"Its type is {resolve(name).event_type!r} in full."
        except UnknownEventType as unknown:
            hint = unknown.hint
        return MalformedEvent(f"Malformed event: there is no event type {name!r}.", hint=hint)
    if first["type"] == "union_tag_not_found":
        return MalformedEvent("Malformed event: it has no type.", hint="Set type; list them with: flyball events list")
    where = ".".join(str(part) for part in first["loc"] if part not in BY_TYPE) or "the event"
    return MalformedEvent(f"Malformed event: {first['msg']}.", hint=f"Look at {where}.")


class NoUpcast(FlyballError):
    """An event newer than this program, or without an upcast."""


def lift(event_type: str, data: dict[str, Any], version: int, target: int) -> dict[str, Any]:
    """Lift ``data`` step by step from ``version`` to ``target``. Raises ``NoUpcast``."""
    if version > target:
        raise NoUpcast(
            f"{event_type} is of version {version}, this Flyball knows {target}.",
            hint="Upgrade Flyball on this node.",
        )
    for step in range(version, target):
        if (event_type, step) not in UPCASTS:
            raise NoUpcast(f"No upcast leads {event_type} from version {step} to {step + 1}.", hint="Add one.")
        data = UPCASTS[event_type, step](data)
    return data


def _without_worker(shard: dict[str, Any]) -> dict[str, Any]:
    return {**shard, "worker": None}


def _without_seconds(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "seconds": None}  # the version before did not measure them


def _worker_into_shard(data: dict[str, Any]) -> dict[str, Any]:
    others = {name: value for name, value in data.items() if name != "worker"}
    return {**others, "probe": False, "shard": {**data["shard"], "worker": data["worker"] or None}}


def _move_knobs(data: dict[str, Any]) -> dict[str, Any]:
    """Move learning rate and epochs out of PPO's settings; other data is left for later validation."""
    settings = data["settings"]
    if not isinstance(settings, dict) or not isinstance(settings.get("configs"), list):
        return data
    return {
        **data,
        "settings": {**settings, "configs": [_move_config_knobs(config) for config in settings["configs"]]},
    }


def _move_config_knobs(config: Any) -> Any:
    ppo = config.get("ppo") if isinstance(config, dict) else None
    if not isinstance(ppo, dict):
        return config
    moved = {name: ppo[name] for name in ("learning_rate", "epochs") if name in ppo}
    return {**config, **moved, "ppo": {name: value for name, value in ppo.items() if name not in moved}}


def _drop_silence_setting(data: dict[str, Any]) -> dict[str, Any]:
    """Drop the scheduler's ``node_silent_seconds``, now a setting of the broker."""
    match data:
        case {"settings": {"feedback": {"scheduler": {"node_silent_seconds": _, **scheduler}, **feedback}, **settings}}:
            return {**data, "settings": {**settings, "feedback": {**feedback, "scheduler": scheduler}}}
    return data


GONE = {"curriculum": "least_velocity", "scheduler": "staleness_hours"}
"""Feedback settings of version 3 of RUN_CONFIGURED that are gone, by table."""


def _time_by_the_clock(data: dict[str, Any]) -> dict[str, Any]:
    """Let stall windows last their hours, as they did before a run had its own time, and drop settings of ``GONE``."""
    match data:
        case {"settings": {"feedback": {"stall": {**stall}, **others}, **settings}}:
            tables = {table: _without(values, GONE.get(str(table))) for table, values in others.items()}
            feedback = {**tables, "stall": {"window_ratings": 0, **stall}}
            return {**data, "settings": {**settings, "feedback": feedback}}
    return data


def _without(values: Any, name: str | None) -> Any:
    return {key: value for key, value in values.items() if key != name} if isinstance(values, dict) else values


MEASURED = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
"""Fields of version 1 of TRAINING_PROGRESS that became metrics."""


def _gather_metrics(data: dict[str, Any]) -> dict[str, Any]:
    others = {name: value for name, value in data.items() if name not in MEASURED}
    return {**others, "metrics": {name: data[name] for name in MEASURED}}


def _drop_unmeasured(data: dict[str, Any]) -> dict[str, Any]:
    """Leave out unmeasured metrics, which version 1 recorded as null."""
    metrics = data["metrics"]
    measured = None if metrics is None else {name: value for name, value in metrics.items() if value is not None}
    return {**data, "metrics": measured}


def _add_bounds(data: dict[str, Any]) -> dict[str, Any]:
    """Add to each rating that it is no bound."""
    return {**data, "ratings": [{**rating, "bound": None} for rating in data["ratings"]]}


def _add_grades(data: dict[str, Any]) -> dict[str, Any]:
    """Add to each match that its outcomes are not graded, and its mean outcome unknown."""
    return {**data, "results": [{**match, "outcome": None, "graded": None} for match in data["results"]]}


UPCASTS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {
    ("flyball.daemon.heartbeat", 1): lambda data: {**data, "requests": ()},  # version 1 renewed all leases
    ("flyball.node.lost", 1): lambda data: {
        "daemon": "selfplay_worker",
        **data,
    },  # the scheduler watched no other daemons
    # The next version only admits more values of a field.
    ("flyball.evaluation.completed", 1): lambda data: data,
    ("flyball.evaluation.completed", 2): lambda data: {**_add_grades(data), "undecided_games": None},
    ("flyball.evaluation.completed", 3): lambda data: data,
    ("flyball.evaluation.failed", 1): lambda data: data,
    ("flyball.quality.score_updated", 3): lambda data: data,
    ("flyball.selfplay.completed", 3): lambda data: data,
    ("flyball.training.completed", 3): lambda data: data,
    ("flyball.training.requested", 2): lambda data: data,
    ("flyball.training.failed", 1): lambda data: data,
    # The next version admits user-defined bots as players.
    ("flyball.league.elo_updated", 1): lambda data: data,
    ("flyball.league.elo_updated", 2): _add_bounds,
    ("flyball.league.matches_requested", 2): lambda data: data,
    ("flyball.league.matchmaking_updated", 1): lambda data: data,
    ("flyball.league.opponent_sampled", 1): lambda data: data,
    ("flyball.selfplay.completed", 2): lambda data: data,
    ("flyball.selfplay.requested", 2): lambda data: data,
    ("flyball.league.matches_requested", 1): lambda data: {**data, "purpose": "tournament"},  # the only purpose then
    ("flyball.curriculum.rebalanced", 1): lambda data: {**data, "plateaued": ()},  # nothing was called plateaued
    # Version 1 did not name the worker, or not in the shard.
    ("flyball.quality.degraded", 1): _without_worker,
    ("flyball.quality.parity_checked", 1): _without_worker,
    ("flyball.quality.parity_checked", 2): lambda data: {**data, "against": None},  # version 2 did not name the rules
    ("flyball.quality.score_updated", 1): lambda data: {**data, "shard": _without_worker(data["shard"])},
    ("flyball.quality.score_updated", 2): _without_seconds,
    ("flyball.evaluation.plateau_detected", 1): lambda data: {**data, "least_gain": None},
    ("flyball.evaluation.regression_detected", 1): lambda data: {**data, "opponent": None},
    ("flyball.model.distribution_failed", 1): lambda data: {**data, "node": None},  # there was one distributor
    ("flyball.model.distribution_failed", 2): lambda data: {**data, "damaged": None, "readable": None},
    ("flyball.training.requested", 1): lambda data: {
        **data,
        "shards": [_without_worker(shard) for shard in data["shards"]],
    },
    ("flyball.training.completed", 1): _drop_unmeasured,
    ("flyball.training.completed", 2): _without_seconds,
    ("flyball.training.progress", 1): _gather_metrics,
    ("flyball.run.configured", 1): _move_knobs,
    ("flyball.run.configured", 2): _drop_silence_setting,
    ("flyball.run.configured", 3): _time_by_the_clock,
    ("flyball.selfplay.completed", 1): _worker_into_shard,
    ("flyball.selfplay.requested", 1): lambda data: {**data, "probe": False},  # version 1 had no probes
    ("flyball.training.loss_anomaly_detected", 1): lambda data: {**data, "consecutive": 1},  # no rule depended on it
}
"""Functions that lift ``data`` from version n to n + 1, by (event type, n).

Add one when a payload's schema changes and its ``version`` is raised, because journals are never rewritten.
"""
