"""Duplicated shards are refused before training, by key and by games."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from selfplay_rig import CONFIG, ignore, inspection_spec, put_model, selfplay_spec

from flyball.app.config import GAMES
from flyball.app.play.inspection import ForeignShard, RepeatedShard, inspect
from flyball.app.play.selfplay import play
from flyball.app.store import FileStore, Shard, get_shard, put_shard

SMALL = GAMES["tic_tac_toe_2p"]
COLUMNS = ("obs", "mask", "action", "log_prob", "value", "reward", "done", "truncated", "bootstrap", "seat", "step")


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


def played(root: Path, count: int, config=CONFIG, scale: float = 1.0, games: int = 64) -> list[str]:
    """Play some shards with one model; ``scale`` sharpens it."""
    model = put_model(root, config, scale=scale)
    specs = (selfplay_spec(root, model, config, games=games, seed=seed) for seed in range(count))
    return [play(spec, ignore)["shard"] for spec in specs]


def look(root: Path, shard: str, earlier: list[str], config=CONFIG):
    return inspect(inspection_spec(root, shard, config, earlier=earlier), ignore)


def of_games(shard: Shard, games: list[int]) -> Shard:
    """Return a shard of another's games, in the given order."""
    rows = np.concatenate([np.flatnonzero(shard.game == game) for game in games])
    numbers = np.concatenate([np.full((shard.game == game).sum(), i, np.int32) for i, game in enumerate(games)])
    histories = [shard.history[shard.history_offsets[game] : shard.history_offsets[game + 1]] for game in games]
    return replace(
        shard,
        **{name: getattr(shard, name)[rows] for name in COLUMNS},
        game=numbers,
        returns=shard.returns[games],
        history=np.concatenate(histories),
        history_offsets=np.cumsum([0, *map(len, histories)], dtype=np.int64),
    )


def joined(first: Shard, second: Shard) -> Shard:
    """Return a shard with the games of two shards."""
    both = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in COLUMNS}
    offsets = np.concatenate([first.history_offsets, second.history_offsets[1:] + first.history_offsets[-1]])
    return replace(
        first,
        **both,
        game=np.concatenate([first.game, second.game + np.int32(first.games)]),
        returns=np.concatenate([first.returns, second.returns]),
        history=np.concatenate([first.history, second.history]),
        history_offsets=offsets,
    )


def test_repeated_shards_and_their_games_are_refused(tmp_path: Path, store: FileStore) -> None:
    """Each shard is read once for all inspections."""
    first, second = played(tmp_path, 2)
    assert not look(tmp_path, second, [first])["failures"]
    with pytest.raises(RepeatedShard, match=f"{second} was delivered before"):
        look(tmp_path, second, [first, second])
    shard = get_shard(store, first)
    copy = put_shard(store, replace(shard, meta=shard.meta.replace(worker="another@test")))
    with pytest.raises(RepeatedShard, match=r"64 of 64 games .* earlier shards"):
        look(tmp_path, copy, [first, second])
    assert not look(tmp_path, copy, [second])["failures"]
    store.delete(first)
    with pytest.raises(RepeatedShard):
        look(tmp_path, copy, [first])


def test_games_gathered_from_several_shards_are_refused(tmp_path: Path, store: FileStore) -> None:
    first, second, third = played(tmp_path, 3)
    order = np.random.default_rng(0).permutation(64).tolist()
    gathered = joined(of_games(get_shard(store, first), order[:20]), of_games(get_shard(store, second), order[20:40]))
    mixed = joined(gathered, of_games(get_shard(store, third), order[40:]))  # 24 of 64 games are new
    with pytest.raises(RepeatedShard, match="40 of 64 games"):
        look(tmp_path, put_shard(store, mixed), [first, second])


@pytest.mark.parametrize("scale", [1.0, 8.0, 30.0])
def test_tic_tac_toe_repeats_its_games_and_is_none_the_worse(tmp_path: Path, scale: float) -> None:
    """Repeat games, because tic-tac-toe has few. A sharper model plays ever fewer different games."""
    shards = played(tmp_path, 8, SMALL, scale, games=256)
    for number, shard in enumerate(shards):
        assert not look(tmp_path, shard, shards[:number], SMALL)["failures"]


def test_even_in_tic_tac_toe_a_copy_in_its_order_is_found(tmp_path: Path, store: FileStore) -> None:
    *earlier, last = played(tmp_path, 4, SMALL, scale=8.0, games=256)
    shard = get_shard(store, earlier[1])
    copy = put_shard(store, replace(shard, meta=shard.meta.replace(seed=77)))
    with pytest.raises(RepeatedShard, match="256 of 256"):
        look(tmp_path, copy, [*earlier, last], SMALL)


def test_missing_and_damaged_shards_are_not_compared(tmp_path: Path, store: FileStore) -> None:
    first, second, third = played(tmp_path, 3)
    store.delete(first)
    path = next(tmp_path.glob(f"**/{second}"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert not look(tmp_path, third, [first, second])["failures"]


def test_shard_of_another_model_than_its_event_is_refused(tmp_path: Path) -> None:
    (shard,) = played(tmp_path, 1)
    with pytest.raises(ForeignShard, match=r"not of connect_four_2p .* by eeeeeeee"):
        inspect(inspection_spec(tmp_path, shard, model="e" * 64), ignore)
