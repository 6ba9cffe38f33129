"""The bounded cache of players that stay in memory between jobs."""

from pathlib import Path

import pytest

from flyball.app.config import GAMES, GameConfig
from flyball.app.games import open_table
from flyball.app.learning.jobs import first_model
from flyball.app.play.players import PlayerCache, WrongModel
from flyball.app.play.search import SearchPlayer
from flyball.app.store import FileStore, MemoryStore, MissingBlob, put_checkpoint

CONFIG = GAMES["tic_tac_toe_2p"]
SPEC = open_table(CONFIG, 0).spec


def put_models(store, count):
    return [put_checkpoint(store, *first_model(CONFIG, SPEC, seed), None) for seed in range(count)]


def test_least_wanted_player_goes_and_searches_are_not_shared() -> None:
    store = MemoryStore()
    one, two, three = put_models(store, 3)
    cache = PlayerCache(capacity=2)
    first, second = cache.load(store, one, SPEC), cache.load(store, two, SPEC)
    assert cache.load(store, one, SPEC) is first
    cache.load(store, three, SPEC)
    assert cache.load(store, one, SPEC) is first
    assert cache.load(store, two, SPEC) is not second
    store, cache = MemoryStore(), PlayerCache()
    (model,) = put_models(store, 1)
    first = cache.load(store, f"{model}+8", SPEC, config=CONFIG)
    assert isinstance(first, SearchPlayer)
    assert cache.load(store, f"{model}+8", SPEC, config=CONFIG) is not first


def test_models_are_read_once_and_failures_not_kept(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    (model,) = put_models(store, 1)
    cache = PlayerCache()
    player = cache.load(store, model, SPEC)
    store.delete(model)
    assert cache.load(FileStore(tmp_path), model, SPEC) is player  # the same folder is the same store
    assert cache.load(store, "random", SPEC) is cache.load(store, "random", SPEC)
    with pytest.raises(MissingBlob):
        cache.load(FileStore(tmp_path / "other"), model, SPEC)
    store, cache = MemoryStore(), PlayerCache()
    with pytest.raises(MissingBlob):
        cache.load(store, "0" * 64, SPEC)
    (model,) = put_models(store, 1)
    cache.load(store, model, SPEC)
    with pytest.raises(WrongModel):
        cache.load(store, model, open_table(GAMES["connect_four_2p"], 0).spec)
    liars = GameConfig(key="liars_2p", game="liars_dice", players=2)
    before, now = (open_table(liars.replace(observation=name), 0).spec for name in ("observation", None))
    assert (before.observation_size, before.actions) == (now.observation_size, now.actions)
    store = MemoryStore()
    model = put_checkpoint(store, *first_model(liars, before, 0), None)
    with pytest.raises(WrongModel, match="21 features \\(information_state\\)"):
        PlayerCache().load(store, model, now)
