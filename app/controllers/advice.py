"""Conversion of controllers' emissions to advice, in a run that only advises (ADR-039)."""

from collections.abc import Iterable

from msgspec.structs import replace

from flyball.app.events import Envelope, Kind, ModelAdvised, ModelPromoted, ModelRolledBack, Payload, PromotionRejected


def as_advice(drafted: Iterable[Envelope[Payload]]) -> list[Envelope[Payload]]:
    """Return controllers' emissions as a run that only advises publishes them.

    Requests are left out. Verdicts on models become MODEL_ADVISED under the same ids, because otherwise every reader
    would take the promoted model for the current one. All other decisions stay: they are the controllers' own memory.
    """
    return [_advice(envelope) for envelope in drafted if envelope.data.kind is not Kind.REQUEST]


def _advice(envelope: Envelope[Payload]) -> Envelope[Payload]:
    match envelope.data:
        case ModelPromoted(model=model, previous=current, step=step, evidence=evidence):
            why, advice = evidence.statistic, "promote"
        case PromotionRejected(model=model, current=current, step=step, evidence=evidence):
            why, advice = evidence.statistic, "reject"
        case ModelRolledBack(from_model=current, to_model=model, step=step, reason=reason):
            why, advice = reason, "roll_back"
        case _:
            return envelope
    data = ModelAdvised.model_validate(
        {"advice": advice, "model": model, "current": current, "step": step, "reason": why}
    )
    return replace(envelope, type=data.event_type, dataversion=data.dataversion, data=data)
