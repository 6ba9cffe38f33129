"""The quality job: is a shard what it claims to be, and how good is it as food for training?"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.config import GameConfig, Settings
from app.core import FlyballError, ModelHash, ShardKey
from app.engine import JsonObject, Report
from app.evaluation import ShardStatistics, quality_score, seat_wins
from app.games import GameRecord, checker_for, open_table
from app.selfplay.repeats import check_games, check_key, history
from app.store import BlobStore, FileStore, Shard, delete_shard, get_shard


class InspectionSpec(Settings):
    """Arguments of an inspection."""

    store: Path
    config: GameConfig
    shard: ShardKey
    model: ModelHash = Field(description="that is said to have played it")
    earlier: tuple[ShardKey, ...] = Field(default=(), description="the configuration's shards before it, oldest first")
    discard: tuple[ShardKey, ...] = Field(default=(), description="spent shards, deleted from the store")
    seed: int = Field(ge=0, description="of the sample of games")
    sample_games: int = Field(default=16, ge=1, description="games that are played again for the parity check")


class InspectionResult(Settings):
    """Result of an inspection. A shard with failures must not be trained on, whatever its score."""

    score: float
    components: dict[str, float]
    statistics: ShardStatistics
    checked: int = Field(description="games played again")
    failures: tuple[str, ...] = Field(description="one for each game that differs, with its first difference")


class ForeignShard(FlyballError):
    """A shard of another configuration, of other rules, or of another model than it is said to be of."""


def inspect(spec: JsonObject, report: Report) -> JsonObject:
    """Delete what is spent, carry out the rest of ``InspectionSpec`` and return ``InspectionResult``.

    Raises ``MissingBlob``, ``DamagedBlob`` for a changed bit, ``ForeignShard`` or ``RepeatedShard``.
    """
    settings = InspectionSpec.model_validate(spec)
    store = FileStore(settings.store)
    for spent in settings.discard:
        delete_shard(store, spent)
    return inspect_in(store, settings, report).model_dump(mode="json")


def inspect_in(store: BlobStore, spec: InspectionSpec, report: Report) -> InspectionResult:
    """Inspect a shard of ``store``; the store named in the spec is not opened."""
    check_key(spec.shard, spec.earlier)
    shard = get_shard(store, spec.shard)
    _check_origin(shard, spec)
    check_games(store, shard, spec.earlier)
    counted = shard_statistics(shard)
    report({"rows": counted.rows, "games": counted.games})
    quality = quality_score(counted)
    sample = np.random.default_rng(spec.seed).permutation(shard.games)[: spec.sample_games]
    return InspectionResult(
        score=quality.score,
        components=quality.components,
        statistics=counted,
        checked=len(sample),
        failures=tuple(_differences(shard, spec.config, np.sort(sample))),
    )


def shard_statistics(shard: Shard) -> ShardStatistics:
    """Count what the quality of a shard depends on."""
    cut = _cut_off_games(shard)
    wins, drawn = seat_wins(shard.returns, cut)
    return ShardStatistics(
        rows=shard.rows,
        distinct_positions=_distinct([row.tobytes() for row in shard.obs]),
        games=shard.games,
        distinct_games=_distinct([history(shard, game).tobytes() for game in range(shard.games)]),
        truncated_games=int(cut.sum()),
        wins=wins,
        drawn_games=drawn,
        surprise=max(0.0, float(-shard.log_prob.mean())),
        freedom=float(np.log(shard.mask.sum(axis=1)).mean()),
        mean_length=float(np.bincount(shard.game, minlength=shard.games).mean()),
    )


def game_record(shard: Shard, game: int) -> GameRecord:
    """Return one game of a shard, for the parity check."""
    rows = np.flatnonzero(shard.game == game)
    return GameRecord(
        history=history(shard, game).tolist(),
        returns=shard.returns[game],
        truncated=bool(shard.truncated[rows].any()),
        step=shard.step[rows],
        seat=shard.seat[rows],
        action=shard.action[rows],
        obs=shard.obs[rows],
        mask=shard.mask[rows],
    )


def _check_origin(shard: Shard, spec: InspectionSpec) -> None:
    rules = open_table(spec.config, 1).spec.rules_version
    claimed = shard.meta.config_key, shard.meta.rules_version, shard.meta.model
    expected = spec.config.key, rules, spec.model
    if claimed != expected:
        raise ForeignShard(
            f"Shard {spec.shard} is of {_origin(*claimed)}, not of {_origin(*expected)}.",
            hint="Leave it out, and play fresh games under the rules installed here.",
        )


def _origin(key: str, rules: str, model: str) -> str:
    return f"{key} under {rules} by {model[:8]}"


def _differences(shard: Shard, config: GameConfig, games: NDArray[np.int64]) -> Iterator[str]:
    checker = checker_for(config)
    for game in games.tolist():
        found = [*checker.failures(game_record(shard, game)), *_rewards(shard, game)]
        if found:
            yield f"game {game}: {found[0]}"


def _rewards(shard: Shard, game: int) -> Iterator[str]:
    """Check that every episode's rewards sum to its outcome; one that was cut off has none yet."""
    for seat in np.unique(shard.seat[shard.game == game]).tolist():
        rows = (shard.game == game) & (shard.seat == seat)
        total, outcome = float(shard.reward[rows].sum()), float(shard.returns[game, seat])
        if not np.isclose(total, outcome, rtol=0, atol=1e-5):
            yield f"seat {seat} was rewarded {total}, its outcome is {outcome}"


def _cut_off_games(shard: Shard) -> NDArray[np.bool_]:
    cut = np.zeros(shard.games, dtype=np.bool_)
    cut[shard.game[shard.truncated]] = True
    return cut


def _distinct(items: list[bytes]) -> int:
    return len(set(items))
