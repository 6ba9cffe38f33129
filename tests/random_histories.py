"""Random histories: any events in any order, about few things, so that they meet the rows that earlier ones left."""

from collections.abc import Collection
from typing import Any

from event_strategies import of_model
from hypothesis import strategies as st

from app.config import GAMES, RunSettings
from app.events import Event, Payload, RunConfigured, Scope, ShardRef, originate
from app.events.envelope import EPOCH

CONFIGS = (GAMES["tic_tac_toe_2p"], GAMES["connect_four_2p"])
SETTINGS = RunSettings(configs=CONFIGS)
CONFIGURED = RunConfigured(run_id="run", settings=SETTINGS.model_dump(mode="json"))
FEW = st.sampled_from(["event-0", "event-1", "event-2", "event-3"])
NAMED = ("model", "base_model", "current", "request_id")
STEP_US = 30_000_000


@st.composite
def payloads(draw: st.DrawFn, payload: type[Payload]) -> Payload:
    """Draw a payload of one type whose models and requests are of a few."""
    data = draw(of_model(payload))
    update: dict[str, Any] = {name: draw(FEW) for name in NAMED if name in payload.model_fields}
    shard = getattr(data, "shard", None)
    if isinstance(shard, ShardRef):
        update["shard"] = shard.model_copy(update={"model": draw(FEW), "rows": draw(st.integers(1, 20_000))})
    return data.model_copy(update=update)


@st.composite
def histories(draw: st.DrawFn, types: Collection[type[Payload]], max_size: int = 12) -> list[Event[Payload]]:
    """Draw a configured run's first events, of these types, half a minute apart."""
    kinds = sorted(set(types) - {RunConfigured}, key=lambda payload: payload.event_type)
    drawn = [CONFIGURED, *draw(st.lists(st.sampled_from(kinds).flatmap(payloads), max_size=max_size))]
    events = []
    for index, data in enumerate(drawn):
        subject = draw(st.sampled_from(CONFIGS)).key if data.scope is Scope.CONFIG else None
        envelope = originate(data, event_id=f"event-{index}", time=EPOCH, subject=subject)
        events.append(Event(envelope, index + 1, index * STEP_US, "test@laptop"))
    return events
