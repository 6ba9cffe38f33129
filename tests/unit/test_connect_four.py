"""Our own connect four against OpenSpiel's, move for move and shard for shard, and every line of four."""

from itertools import product

import numpy as np
import pytest

from app.config import GAMES
from app.core import ConfigKey
from app.games import FINISHED, IllegalAction, OpenSpielTable, UnknownGame, open_table
from app.games.connect_four import CELLS, COLUMNS, ROWS, ConnectFourTable, has_four
from app.policy import Policy, init_policy
from app.selfplay import RandomPlayer, play_recorded, selfplay_schedule
from app.store import MemoryStore, ShardMeta, put_shard

CONFIG = GAMES[ConfigKey("connect_four_2p")]
THEIRS = CONFIG.model_copy(update={"engine": "openspiel"})
LINES = [
    [(row + k * up, column + k * right) for k in range(4)]
    for up, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    for row, column in product(range(ROWS), range(COLUMNS))
    if row + 3 * up < ROWS and 0 <= column + 3 * right < COLUMNS
]
DRAWN = [
    *(2, 6, 4, 4, 2, 3, 4, 1, 6, 2, 3, 4, 4, 5, 1, 3, 6, 3, 1, 1, 3, 1, 6, 4, 3, 1, 5, 6, 2, 6, 5, 5, 5, 2, 5, 0, 2),
    *[0] * 5,
]
"""A game that fills the board; after 37 moves there is no choice."""


def as_set(line) -> int:
    return sum(1 << 8 * row + column for row, column in line)


def alike(ours, theirs) -> bool:
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def ends(table, slots):
    return table.returns(), table.truncated(), table.seats(), [table.history(slot) for slot in range(slots)]


def one(*moves):
    table = ConnectFourTable(1)
    table.reset(np.array([0]), [0])
    for move in moves:
        table.step(np.array([0]), np.array([move], dtype=np.int32))
    return table


@pytest.mark.parametrize(("limit", "games"), [(None, 4000), (1, 50), (20, 500), (38, 500), (41, 500), (42, 500)])
def test_games_agree_with_openspiel_move_for_move(limit: int | None, games: int) -> None:
    ours, theirs = ConnectFourTable(games, limit), OpenSpielTable("connect_four", 2, games, limit)
    for table in (ours, theirs):
        table.reset(np.arange(games), range(games))
    rng, decisions = np.random.default_rng(1), 0
    while len(live := np.flatnonzero(theirs.seats() != FINISHED)):
        assert alike([ours.seats()], [theirs.seats()])
        obs, mask = theirs.observe(live)
        assert alike(ours.observe(live), (obs, mask))
        waiting = 1 - theirs.seats()[live]
        assert alike([ours.view(live, waiting)], [theirs.view(live, waiting)])
        actions = (rng.random(mask.shape) * mask).argmax(axis=1).astype(np.int32)
        for table in (ours, theirs):
            table.step(live, actions)
        decisions += len(live)
    (*our_ends, our_moves), (*their_ends, their_moves) = ends(ours, games), ends(theirs, games)
    assert alike(our_ends, their_ends)
    assert our_moves == their_moves
    if limit is None:  # enough games to meet what is rare
        won = np.array(
            [[as_set(line) & ~stones == 0 for line in LINES] for stones in ours._games["stones"].ravel().tolist()]
        )
        assert won.any(axis=0).all()
        assert (ours.returns() == 0).all(axis=1).any()
        assert sum(map(len, our_moves)) > decisions  # some moves were forced


def test_every_line_of_four_is_found_and_nothing_else() -> None:
    assert len(LINES) == 69
    for line in LINES:
        assert has_four(as_set(line))
        assert not any(has_four(as_set(line[:k] + line[k + 1 :])) for k in range(4))
    boards = np.random.default_rng(0).random((5000, ROWS, COLUMNS)) < 0.4
    expected = [any(all(board[cell] for cell in line) for line in LINES) for board in boards]
    assert [has_four(as_set(np.argwhere(board).tolist())) for board in boards] == expected
    assert 0.1 < np.mean(expected) < 0.9


def test_a_full_board_without_a_line_is_a_draw_and_its_last_moves_are_forced() -> None:
    table = one(*DRAWN[:37])
    assert table.seats()[0] == FINISHED
    assert table.history(0) == DRAWN
    assert len(DRAWN) == CELLS
    assert not table.returns().any()
    assert not table.truncated().any()


@pytest.mark.parametrize("action", [3, 7, -1])
def test_an_illegal_action_is_refused_and_no_game_moves_on(action: int) -> None:
    table = ConnectFourTable(2)
    table.reset(np.arange(2), [0, 0])
    for _ in range(ROWS):
        table.step(np.array([1]), np.array([3], dtype=np.int32))
    with pytest.raises(IllegalAction, match=rf"Action {action} in slot 1 .*\[0, 1, 2, 4, 5, 6\]"):
        table.step(np.arange(2), np.array([0, action], dtype=np.int32))
    assert table.history(0) == []
    assert table.history(1) == [3] * ROWS


def test_nothing_is_legal_before_a_game_and_after_it() -> None:
    for table in (ConnectFourTable(1), one(0, 1, 0, 1, 0, 1, 0)):
        assert table.seats()[0] == FINISHED
        with pytest.raises(IllegalAction, match=r"slot 0 .*\[\]"):
            table.step(np.array([0]), np.array([2], dtype=np.int32))


def test_a_slot_that_begins_again_is_empty() -> None:
    table = one(0, 1, 0, 1, 0, 1, 0)
    assert table.returns().tolist() == [[1, -1]]
    table.reset(np.array([0]), [0])
    fresh = one()
    assert alike(table.observe(np.array([0])), fresh.observe(np.array([0])))
    assert not table.returns().any()
    assert table.history(0) == []


@pytest.mark.parametrize("limit", [None, 17])
def test_self_play_by_either_engine_gives_the_same_shard_bit_for_bit(limit: int | None) -> None:
    spec = ConnectFourTable(0).spec
    parameters = init_policy(CONFIG.network, spec.observation_size, spec.actions, seed=3)
    policy = Policy(CONFIG.network, spec.observation_size, spec.actions, parameters)
    schedule = selfplay_schedule(300, 2, [([1], 100)], (1.3, 1.0), 5)
    meta = ShardMeta(
        config_key=CONFIG.key, rules_version="r", model="a" * 64, opponents=(), seed=5, worker="w", temperature=1.3
    )

    def played(config):
        config = config.model_copy(update={"max_moves": limit})
        shard, outcomes = play_recorded(config, [policy, RandomPlayer()], schedule, meta, in_flight=64)
        return put_shard(MemoryStore(), shard), outcomes.histories

    assert played(CONFIG) == played(THEIRS)


def test_both_engines_say_the_same_of_the_game_but_whose_rules_they_are() -> None:
    ours, theirs = open_table(CONFIG, 0).spec, open_table(THEIRS, 0).spec
    assert (ours.players, ours.actions, ours.observation_size) == (2, 7, 126)
    for name in ("players", "actions", "observation_size", "observation_type", "bots"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert [symmetry.name for symmetry in ours.symmetries] == [symmetry.name for symmetry in theirs.symmetries]
    assert ours.rules_version == "flyball-1:connect_four"
    assert theirs.rules_version.startswith("openspiel-")


@pytest.mark.parametrize(
    ("game", "table"),
    [
        ("connect_four", ConnectFourTable),
        ("connect_four(rows=6,columns=7)", ConnectFourTable),
        ("connect_four(rows=8,columns=9)", OpenSpielTable),
        ("connect_four(x_in_row=3)", OpenSpielTable),
    ],
)
def test_only_the_usual_board_is_played_by_our_own_rules(game: str, table: type) -> None:
    assert isinstance(open_table(CONFIG.model_copy(update={"game": game}), 1), table)
    assert isinstance(open_table(THEIRS.model_copy(update={"game": game}), 1), OpenSpielTable)


def test_another_board_is_seen_whole() -> None:
    table = open_table(CONFIG.model_copy(update={"game": "connect_four(rows=8,columns=9)"}), 1)
    table.reset(np.array([0]), [0])
    for column in (8, 8, 0):
        table.step(np.array([0]), np.array([column], dtype=np.int32))
    obs, mask = table.observe(np.array([0]))
    mine, others, empty = obs.reshape(3, 8, 9)
    assert (np.argwhere(mine).tolist(), np.argwhere(others).tolist()) == ([[1, 8]], [[0, 0], [0, 8]])
    assert empty.sum() == 72 - 3
    assert mask.shape == (1, 9)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"players": 3}, "played by 2"),
        ({"game": "connect_four(height=6)"}, "does not load"),
        ({"selfplay": CONFIG.selfplay.model_copy(update={"rewards": "shaped"})}, "rewarded at its end"),
    ],
)
def test_a_configuration_that_does_not_fit_says_why(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(UnknownGame, match=complaint):
        open_table(CONFIG.model_copy(update=changes), 1)
