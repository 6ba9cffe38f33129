"""bad-data: a worker delivers games with falsified outcomes and is put into quarantine."""

from dataclasses import replace

import numpy as np

from app.core import ShardKey, derive_id, derive_seed
from app.events import (
    NodeQuarantined,
    NodeReleased,
    ParityChecked,
    QualityDegraded,
    SelfplayComplete,
    ShardRef,
    TrainingRequested,
)
from app.job_specs import SelfplaySpec
from app.scenarios.plan import ConfigView, Expected, Plan, Scenario
from app.store import BlobStore, Shard, get_shard, put_shard

WORKER = "selfplay_worker@liar"


def _lacks(view: ConfigView, store: BlobStore) -> str | None:
    if view.state.training_block is not None:
        return "is kept from training by the quality of its data already"
    if view.shard is None:
        return "has no games to compare false ones with"
    return None if view.model and store.has(view.model) else "has no current model in the store"


def _plan(view: ConfigView, store: BlobStore) -> Plan:
    trouble = _play_falsely(view, store)
    key = trouble.shard.key
    return Plan(
        key=view.key,
        trouble=trouble,
        expected=(
            Expected(
                "detected",
                ParityChecked,
                lambda event, _: event.data.shard == key and event.data.failures > 0,
                "The quality monitor inspects every shard: does it run, and how far is it behind? (flyball status)",
            ),
            Expected(
                "detected",
                QualityDegraded,
                lambda event, _: event.data.shard == key,
                "The quality monitor says it together with the check: does it run? (flyball status)",
            ),
            Expected(
                "decided",
                NodeQuarantined,
                lambda event, _: event.data.worker == WORKER,
                "The feedback daemon decides it: does it run, and how far is it behind? (flyball status)",
            ),
            Expected(
                "recovered",
                TrainingRequested,
                lambda event, _: key not in {shard.key for shard in event.data.shards},
                f"It may take more games to have enough rows for a training (games.{view.key}.rows_per_training).",
            ),
        ),
        remains=f"{WORKER}, which does not exist, is in quarantine, or soon will be.",
        remedy=NodeReleased(worker=WORKER, reason="the bad-data scenario is over"),
        remedy_after=2,
    )


def _play_falsely(view: ConfigView, store: BlobStore) -> SelfplayComplete:
    """Play games and store them with false outcomes. Returns the event that a worker would publish."""
    from app.play.selfplay import play_into  # imported late, because the other scenarios don't need torch

    assert view.model is not None  # see _lacks
    config = view.settings.config(view.key)
    seed = derive_seed(view.settings.seed, view.key, "bad-data", view.shard or "")
    spec = SelfplaySpec(
        store="",  # because `play_into` opens no store
        config=config,
        model=view.model,
        games=config.selfplay.games_per_request,
        seed=seed,
        temperature=config.selfplay.temperature,
        worker=WORKER,
    )
    played = play_into(store, spec, lambda _: None)
    honest = ShardKey(played.shard)
    key = put_shard(store, falsify(get_shard(store, honest)))
    store.delete(honest)
    return SelfplayComplete(
        request_id=derive_id("bad-data", key),
        probe=False,
        shard=ShardRef(key=key, worker=WORKER, rows=played.rows, games=played.games, model=view.model, seed=seed),
        opponents=(),
        temperature=spec.temperature,
        mean_length=played.mean_length,
        truncated_games=played.truncated,
        seconds=played.seconds,
    )


def falsify(shard: Shard) -> Shard:
    """Return a copy of a shard; every seat wins every finished game.

    Rewards agree with the outcomes, so only a replay of the games shows that the outcomes are false.
    """
    finished = np.zeros(shard.games, dtype=np.bool_)
    finished[shard.game[shard.done]] = True
    won = np.float32(1)
    return replace(
        shard, returns=np.where(finished[:, None], won, shard.returns), reward=np.where(shard.done, won, shard.reward)
    )


SCENARIO = Scenario("bad-data", "games whose outcomes the rules contradict", _lacks, _plan)
