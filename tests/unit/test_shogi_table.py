"""Tables of Shogi and minishogi: observations, numbers of actions, copies, ends."""

import re

import numpy as np
import pytest
from shogi_games import random_table

from flyball.app.config import GAMES
from flyball.app.games import FINISHED, IllegalAction, UnknownGame, open_table
from flyball.app.games.shogi.encode import UNIT, Layout, arrival_indices, direction_numbers, recall
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.rules import POSITION
from flyball.app.games.shogi.sfen import write_sfen
from flyball.app.games.shogi.table import ShogiTable, parse_rules
from flyball.app.games.shogi.variant import MINISHOGI, SHOGI, VARIANTS, Variant

SLOT = np.array([0])
CONFIGS = pytest.mark.parametrize("key", ["shogi_2p", "minishogi_2p"])
OPTIONS = ("", "(direction_actions=true)")
PLANES = {"shogi": "PLNSGBRK", "minishogi": "PSGBRK"}


def planes_of(sfen: str, number: int, limit: int) -> np.ndarray:
    """Return the observation planes of a position from its SFEN. Values are from 0 to 1."""
    squares, side, hands, _ = sfen.split()
    rows, white = squares.split("/"), side == "w"
    kinds = PLANES["shogi" if len(rows) == 9 else "minishogi"]
    order = [*kinds, *(f"+{kind}" for kind in kinds if kind not in "GK")]
    most = {"P": 18, "L": 4, "N": 4, "S": 4, "G": 4} if len(rows) == 9 else {}
    count = 2 * len(order) + 2 * (len(kinds) - 1) + (4 if len(rows) == 9 else 2)
    planes = np.zeros((count, len(rows), len(rows)))
    for row, text in enumerate(rows):
        column = 0
        for mark, letter, empty in re.findall(r"(\+?)([a-zA-Z])|(\d)", text):
            if letter:
                planes[order.index(mark + letter.upper()) + len(order) * (letter.islower() != white), row, column] = 1
            column += int(empty or 1)
    if white:
        planes = planes[:, ::-1, ::-1]
    held, after = 2 * len(order), 2 * len(order) + 2 * (len(kinds) - 1)
    for held_count, letter in re.findall(r"(\d*)([a-zA-Z])", hands):
        plane = held + kinds.index(letter.upper()) + (len(kinds) - 1) * (letter.islower() != white)
        planes[plane] = int(held_count or 1) / most.get(letter.upper(), 2)
    planes[after] = not white
    planes[after + 1] = np.floor(number / limit * UNIT) / UNIT
    return planes


def begun(game: str, slots: int = 1, limit: int = 500, *sfen: str) -> ShogiTable:
    """Return a table with games at their beginning."""
    table = ShogiTable(parse_rules(game), slots, limit, *sfen)
    table.reset(np.arange(slots), range(slots))
    return table


@CONFIGS
def test_observation_is_what_its_description_says(key: str) -> None:
    config, rng = GAMES[key], np.random.default_rng(0)
    table, game = open_table(config, 1), Replay(VARIANTS[GAMES[key].game], limit=500)
    table.reset(SLOT, [0])
    seen = 0
    while table.seats()[0] != FINISHED and seen < 200:
        obs, mask = table.observe(SLOT)
        planes = obs[0].reshape(table.spec.planes) / table.spec.scale
        np.testing.assert_allclose(
            planes, planes_of(write_sfen(game.position, game.variant), len(table.history(0)), 500)
        )
        assert np.flatnonzero(mask[0]).tolist() == game.legal.tolist()
        table.step(SLOT, rng.choice(np.flatnonzero(mask[0]), 1).astype(np.int32))
        for action in table.history(0)[int(game.position["played"]) :]:
            game.play(action)
        seen += 1
    assert seen > 10


def test_shapes_and_numbers_fit_every_move() -> None:
    plain = ShogiTable(parse_rules("shogi"), 0, 500).spec
    other = ShogiTable(parse_rules("shogi(repetition_planes=true,direction_actions=true)"), 0, 500).spec
    assert (plain.planes, plain.actions) == ((46, 9, 9), 81 * 80 * 2 + 81 * 7)
    assert (other.planes, other.actions) == ((50, 9, 9), 81 * 139)
    assert other.rules_version == "flyball-1:shogi(repetition_planes=true,direction_actions=true)"
    assert POSITION.itemsize < 128
    numbering = direction_numbers(SHOGI)
    used = numbering.number[numbering.number >= 0]
    assert len(set(used.tolist())) == len(used)
    assert (numbering.number[numbering.action[used]] == used).all()
    for history in (random_table("shogi", 1, seed).history(0) for seed in range(3)):
        assert (numbering.number[history] >= 0).all()
    assert direction_numbers(MINISHOGI).actions == 25 * (2 * 8 * 4 + 5)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_every_move_of_a_piece_has_a_place_where_it_arrives(variant: Variant) -> None:
    ways, places = arrival_indices(variant)
    moves = np.flatnonzero(direction_numbers(variant).number >= 0)
    assert len(np.unique(places[moves])) == len(moves), "a place of its own"
    assert [place // ways for place in places[moves]] == [variant.parts(int(move))[1] for move in moves]
    assert (places.min() >= 0, places.max() < variant.cells * ways, len(places)) == (True, True, variant.actions)


@CONFIGS
def test_both_numberings_have_the_same_places(key: str) -> None:
    """A network's planes mean the same moves in both numberings."""
    plain, directed = (ShogiTable(parse_rules(f"{GAMES[key].game}{option}"), 0, 100) for option in OPTIONS)
    number = direction_numbers(VARIANTS[GAMES[key].game]).number
    moves = np.flatnonzero(number >= 0)
    assert plain.spec.action_planes == directed.spec.action_planes
    assert np.array_equal(plain.spec.action_places[moves], directed.spec.action_places[number[moves]])


def test_both_numberings_play_the_same_games() -> None:
    plain, other = (begun(f"minishogi{options}", limit=100) for options in OPTIONS)
    number, rng = direction_numbers(MINISHOGI).number, np.random.default_rng(0)
    while plain.seats()[0] != FINISHED:
        (obs, mask), (other_obs, other_mask) = plain.observe(SLOT), other.observe(SLOT)
        legal = np.flatnonzero(mask[0])
        assert np.array_equal(obs, other_obs)
        assert np.flatnonzero(other_mask[0]).tolist() == sorted(number[legal].tolist())
        action = rng.choice(legal, 1)
        plain.step(SLOT, action.astype(np.int32))
        other.step(SLOT, number[action].astype(np.int32))
    assert other.history(0) == number[plain.history(0)].tolist()
    assert np.array_equal(plain.returns(), other.returns())


def test_repetition_and_check_have_planes() -> None:
    table, game, seen = begun("shogi(repetition_planes=true)"), Replay(SHOGI), []
    for text in ("2h3h", "8b7b", "3h2h", "7b8b") * 2:
        seen.append(table.observe(SLOT)[0].reshape(50, 81)[44:49, 0].tolist())
        action = game.moves[text]
        game.play(action)
        table.step(SLOT, np.array([action], dtype=np.int32))
    assert [row.index(UNIT) for row in seen] == [0, 0, 0, 0, 1, 1, 1, 1]
    checked = begun("shogi(repetition_planes=true)", 1, 500, "4k4/9/9/9/4R4/9/9/9/4K4 w - 1")
    assert checked.observe(SLOT)[0].reshape(50, 81)[44:50, 0].tolist() == [UNIT, 0, 0, 0, UNIT, 0]
    assert checked.view(SLOT, np.array([0], dtype=np.int8)).reshape(50, 81)[48].max() == 0


@pytest.mark.parametrize("game", ["shogi", "minishogi", "shogi(repetition_planes=true)"])
def test_position_can_be_recalled_from_what_is_seen(game: str) -> None:
    rules, table, rng = parse_rules(game), begun(game, 32, 60), np.random.default_rng(0)
    layout = Layout(rules.variant, rules.repetition_planes, 60)
    for _ in range(50):
        live = np.flatnonzero(table.seats() != FINISHED)
        obs, mask = table.observe(live)
        for slot, row in zip(live.tolist(), obs, strict=True):
            recalled = np.zeros(1, dtype=POSITION)[0]
            recall(rules.variant.tables, layout.tables, row, recalled)
            for name in ("board", "hands", "seat"):
                assert np.array_equal(recalled[name], table._games[slot][name])
        table.step(live, (rng.random(mask.shape) * mask).argmax(axis=1).astype(np.int32))


def test_copies_keep_what_repetition_needs() -> None:
    source, target, game = begun("shogi", 2), ShogiTable(parse_rules("shogi"), 2, 500), Replay(SHOGI)
    for text in ("2h3h", "8b7b", "3h2h", "7b8b") * 3:
        game.play(game.moves[text])
    for action in game.history[:7]:
        source.step(np.array([1]), np.array([action], dtype=np.int32))
    target.copy_from(source, np.array([1]), np.array([0]))
    for action in game.history[7:]:
        target.step(SLOT, np.array([action], dtype=np.int32))
    assert target.seats().tolist() == [FINISHED, FINISHED]
    assert not target.truncated()[0]
    assert target.history(0) == game.history
    assert len(source.history(1)) == 7


@pytest.mark.parametrize("action", [-1, 0, 13_527])
def test_illegal_actions_are_refused(action: int) -> None:
    with pytest.raises(IllegalAction, match=f"Action {action} in slot 0"):
        begun("shogi").step(SLOT, np.array([action], dtype=np.int32))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"max_moves": None}, "needs a move limit"),
        ({"max_moves": 5000}, "needs a move limit"),
        ({"players": 3}, "played by 2"),
        ({"game": "shogi(planes=50)"}, "does not understand planes=50"),
        ({"game": "shogi(repetition_planes=2)"}, "does not understand repetition_planes=2"),
        ({"game": "shogi("}, "no game string"),
    ],
)
def test_configuration_that_does_not_fit_says_why(changes, complaint: str) -> None:
    with pytest.raises(UnknownGame, match=complaint):
        open_table(GAMES["shogi_2p"].replace(**changes), 1)
