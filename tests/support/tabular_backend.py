"""Tabular Q-learning as a backend. A model is the positions seen [S, D] and the values of their actions [S, A]."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from flyball.app.backends import POLICY_GRADIENT, GameInfo
from flyball.app.config import GameConfig
from flyball.app.core import ModelHash, derive_seed, is_model
from flyball.app.engine import JsonObject, Report
from flyball.app.games import Mask, Observations, TableSpec, open_table
from flyball.app.play.gauntlet import BatchResult, BatchSpec
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.players import Floats, Player, load_player
from flyball.app.play.selfplay import IN_FLIGHT, SelfplaySpec, play_recorded, selfplay_schedule
from flyball.app.store import (
    BlobStore,
    Checkpoint,
    Manifest,
    Shard,
    get_checkpoint,
    get_shard,
    open_store,
    put_checkpoint,
    put_shard,
)

NAME = "tabular_backend:TABULAR"
SHARPNESS = 8.0  # the logit of a value of 1


class Table:
    """Plays by the values of a table. All actions of a position that is not in the table have the value 0."""

    def __init__(self, model: Checkpoint) -> None:
        tensors = load(model.parameters)
        self.values: dict[bytes, Floats] = {
            row.tobytes(): values.copy() for row, values in zip(tensors["seen"], tensors["values"], strict=True)
        }

    def forward(self, obs: Observations, mask: Mask, temperature: float = 1.0) -> tuple[Floats, Floats]:
        """See ``Player.forward``."""
        none = np.zeros(mask.shape[1], dtype=np.float32)
        values = np.stack([self.values.get(row.tobytes(), none) for row in obs])
        logits = np.where(mask, values * np.float32(SHARPNESS / temperature), np.float32(-1e9))
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), np.where(mask, values, -1).max(axis=1)

    def learn(self, shard: Shard, rate: float) -> float:
        """Move the values of a shard's actions towards their games' outcomes.

        Returns the mean squared error before the move.
        """
        outcomes, errors = shard.returns[shard.game, shard.seat].tolist(), []
        for row, action, outcome in zip(shard.obs, shard.action.tolist(), outcomes, strict=True):
            values = self.values.setdefault(row.tobytes(), np.zeros(shard.mask.shape[1], dtype=np.float32))
            errors.append((outcome - values[action]) ** 2)
            values[action] += rate * (outcome - values[action])
        return float(np.mean(errors))

    def to_bytes(self, kind: np.dtype[Any]) -> bytes:
        """Return the table as a safetensors file; equal tables give equal bytes."""
        seen, values = zip(*sorted(self.values.items()), strict=True)
        return save({"seen": np.stack([np.frombuffer(row, dtype=kind) for row in seen]), "values": np.stack(values)})


def describe(config: GameConfig) -> GameInfo:
    """See ``Backend.describe``; a table has a learning rate, and no other knob."""
    return replace(POLICY_GRADIENT.describe(config), knobs=frozenset({"learning_rate"}))


def player(store: BlobStore, name: str, game: TableSpec) -> Player:
    """Return a model's table, or a built-in player."""
    return Table(get_checkpoint(store, ModelHash(name))) if is_model(name) else load_player(store, name, game)


def initialise(spec: JsonObject, report: Report) -> JsonObject:
    """Store an empty table."""
    config = GameConfig.model_validate(spec["config"])
    game = open_table(config, slots=0).spec
    sizes = {"obs_size": game.observation_size, "actions": game.actions, "network": config.network}
    made: dict[str, Any] = {"config_key": config.key, "backend": config.backend, "content": "q_table", **sizes}
    manifest = Manifest(step=0, parent=None, optimizer=None, **made)
    nothing = np.empty((0, game.observation_size), dtype=game.observation_type)
    table = save({"seen": nothing, "values": np.empty((0, game.actions), dtype=np.float32)})
    model = put_checkpoint(open_store(spec["store"]), manifest, table, None)
    return {"model": model, "parent": None, "step": 0, "rows": 0, "metrics": None}


def play(spec: JsonObject, report: Report) -> JsonObject:
    """Play games and store their rows."""
    began, wanted = time.perf_counter(), SelfplaySpec.model_validate(spec)
    store, config, names = open_store(wanted.store), wanted.config, (wanted.model, *wanted.opponents)
    game, temperatures = open_table(config, 0).spec, (wanted.temperature, *[1.0] * len(wanted.opponents))
    lineups = [([names.index(name) for name in lineup.opponents], lineup.games) for lineup in wanted.lineups]
    schedule = selfplay_schedule(wanted.games, config.players, lineups, temperatures, wanted.seed)
    about: dict[str, Any] = {"model": wanted.model, "seed": wanted.seed, "worker": wanted.worker}
    players = [player(store, name, game) for name in names]
    shard, outcomes = play_recorded(config, players, schedule, in_flight=IN_FLIGHT, **about)
    counts = {"rows": shard.rows, "games": wanted.games, "truncated": int(outcomes.truncated.sum())}
    figures = {"mean_length": float(outcomes.lengths.mean()), "seconds": time.perf_counter() - began}
    return {"shard": put_shard(store, shard), **counts, **figures}


def train(spec: JsonObject, report: Report) -> JsonObject:
    """Move the values of all actions towards their games' outcomes. The actions are those in the shards."""
    store, parent = open_store(spec["store"]), ModelHash(spec["base_model"])
    base, shards = get_checkpoint(store, parent), [get_shard(store, key) for key in spec["shards"]]
    table, rows = Table(base), sum(shard.rows for shard in shards)
    rate = min(1.0, 100 * spec["learning_rate"])
    error = float(np.mean([table.learn(shard, rate) for shard in shards]))
    metrics = {"td_error": error, "positions": len(table.values)}
    report({"epoch": 1, "epochs": 1, "metrics": metrics})
    manifest = base.manifest.successor(parent)
    model = put_checkpoint(store, manifest, table.to_bytes(shards[0].obs.dtype), None)
    return {"model": model, "parent": parent, "step": manifest.step, "rows": rows, "metrics": metrics}


def match(spec: JsonObject, report: Report) -> JsonObject:
    """Play a batch of games against an opponent."""
    began, wanted = time.perf_counter(), BatchSpec.model_validate(spec)
    store, config, part, settings = open_store(wanted.store), wanted.config, wanted.batch, wanted.config.evaluation
    seed = derive_seed(wanted.seed, "match", part.opponent.player)
    plan = MatchPlan(part.games, seed, settings.temperature, settings.opening_plies, part.first)
    game = open_table(config, 0).spec
    hero, opponent = (player(store, name, game) for name in (wanted.model, part.opponent.player))
    games = play_match(config, hero, opponent, plan)
    return BatchResult(games=games, seconds=time.perf_counter() - began).model_dump(mode="json")


OWN = {job: f"tabular_backend:{job}" for job in ("initialise", "play", "train", "match")}
TABULAR = replace(POLICY_GRADIENT, name="tabular", describe=describe, **OWN)  # the shards are Flyball's
