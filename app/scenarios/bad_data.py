"""bad-data and wrong-rules: games with falsified outcomes.

In bad-data one worker of several delivers them, and is put into quarantine. In wrong-rules the only worker does, as
after an update that changed the rules. It cannot be told from a fault of the configuration, so training is blocked
until its games are right again.
"""

from dataclasses import replace

import numpy as np

from flyball.app.core import ShardKey, derive_id, derive_seed
from flyball.app.events import (
    NodeQuarantined,
    NodeReleased,
    ParityChecked,
    QualityDegraded,
    SelfplayComplete,
    ShardRef,
    TrainingBlockedByQuality,
    TrainingRequested,
    TrainingUnblocked,
)
from flyball.app.job_specs import SelfplaySpec
from flyball.app.scenarios.plan import ConfigView, Expected, Plan, Scenario
from flyball.app.store import BlobStore, Shard, get_shard, put_shard

WORKER = "selfplay_worker@liar"


def _lacks(view: ConfigView, store: BlobStore) -> str | None:
    if view.state.training_block is not None:
        return "is kept from training by the quality of its data already"
    if view.shard is None:
        return "has no games to compare false ones with"
    return None if view.model and store.has(view.model) else "has no current model in the store"


def _lacks_one_worker(view: ConfigView, store: BlobStore) -> str | None:
    if (lack := _lacks(view, store)) is not None:
        return lack
    alone = len(view.workers - {WORKER}) == 1
    return None if alone else "is played by several workers, of which only the one at fault would be stopped: bad-data"


def _plan_bad_data(view: ConfigView, store: BlobStore) -> Plan:
    trouble = _play_falsely(view, store, "bad-data", WORKER)
    quarantined = Expected(
        "decided",
        NodeQuarantined,
        lambda event, _: event.data.worker == WORKER,
        "The feedback daemon decides it: does it run, and how far is it behind? (flyball status)",
    )
    return Plan(
        key=view.key,
        trouble=trouble,
        expected=(*_detected(trouble), quarantined, _trained_without(trouble, view)),
        remains=f"{WORKER}, which does not exist, is in quarantine, or soon will be.",
        remedy=NodeReleased(worker=WORKER, reason="the bad-data scenario is over"),
        remedy_after=2,
    )


def _plan_wrong_rules(view: ConfigView, store: BlobStore) -> Plan:
    (worker,) = view.workers - {WORKER}
    trouble = _play_falsely(view, store, "wrong-rules", worker)
    decided = (
        Expected(
            "decided",
            TrainingBlockedByQuality,
            lambda *_: True,
            "The feedback daemon decides it: does it run, and how far is it behind? (flyball status)",
        ),
        Expected(
            "recovered",
            TrainingUnblocked,
            lambda *_: True,
            "It takes feedback.quality.parity_clear_checks shards in a row whose games follow the rules, which are "
            "requested only every feedback.scheduler.idle_seconds during a block.",
        ),
    )
    return Plan(
        key=view.key,
        trouble=trouble,
        expected=(*_detected(trouble), *decided, _trained_without(trouble, view)),
        remains=f"Training of {view.key} is blocked until enough of its games follow the rules.",
    )


def _detected(trouble: SelfplayComplete) -> tuple[Expected, ...]:
    """Return the steps by which the quality monitor finds false outcomes."""
    key = trouble.shard.key
    return (
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
    )


def _trained_without(trouble: SelfplayComplete, view: ConfigView) -> Expected:
    """Return the step after which training has gone on without the false games."""
    key = trouble.shard.key
    return Expected(
        "recovered",
        TrainingRequested,
        lambda event, _: key not in {shard.key for shard in event.data.shards},
        f"It may take more games to have enough rows for a training (games.{view.key}.rows_per_training).",
    )


def _play_falsely(view: ConfigView, store: BlobStore, name: str, worker: str) -> SelfplayComplete:
    """Play games and store them with false outcomes. Returns the event that the worker would publish.

    ``name`` is the scenario's.
    """
    from flyball.app.play.selfplay import play_into  # imported late, because the other scenarios don't need torch

    assert view.model is not None  # see _lacks
    config = view.settings.config(view.key)
    seed = derive_seed(view.settings.seed, view.key, name, view.shard or "")
    spec = SelfplaySpec(
        store="",  # because `play_into` opens no store
        config=config,
        model=view.model,
        games=config.selfplay.games_per_request,
        seed=seed,
        temperature=config.selfplay.temperature,
        worker=worker,
    )
    played = play_into(store, spec, lambda _: None)
    honest = ShardKey(played.shard)
    key = put_shard(store, falsify(get_shard(store, honest)))
    store.delete(honest)
    return SelfplayComplete(
        request_id=derive_id(name, key),
        probe=False,
        shard=ShardRef(key=key, worker=worker, rows=played.rows, games=played.games, model=view.model, seed=seed),
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


SCENARIO = Scenario("bad-data", "games whose outcomes the rules contradict", _lacks, _plan_bad_data)
WRONG_RULES = Scenario(
    "wrong-rules", "the same, by the only worker, as after a change of rules", _lacks_one_worker, _plan_wrong_rules
)
