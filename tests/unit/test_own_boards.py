"""Our own board games agree with OpenSpiel's in moves and shards."""

import dataclasses

import numpy as np
import pytest
from board_games import SLOT, after, alike, at_random, ends

from flyball.app.config import GAMES, GameConfig, SelfplaySettings
from flyball.app.games import FINISHED, IllegalAction, UnknownGame, open_table
from flyball.app.games.board_table import BoardTable
from flyball.app.games.openspiel import load_game
from flyball.app.games.table import Table
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy
from flyball.app.play.players import RandomPlayer
from flyball.app.play.selfplay import play_recorded, selfplay_schedule
from flyball.app.store import MemoryStore, put_shard

LIMITS = {
    "breakthrough6_2p": (1, 12, 20, 27, 40),
    "clobber_2p": (1, 5, 9, 12),
    "connect_four_2p": (1, 20, 38, 41, 42),
    "go7_2p": (1, 20, 60, 97, 98),
    "hex7_2p": (1, 20, 30, 48, 49),
    "othello_2p": (1, 9, 40, 59, 60, 61),
    "tic_tac_toe_2p": (1, 4, 7, 8, 9),
    "ultimate_tic_tac_toe_2p": (1, 30, 55, 70),
}
SIZES = [(2, 2), (3, 6), (12, 3)]  # rows and columns
BOARDS = [("hex7_2p", f"hex(board_size={side})") for side in (2, 4, 18)]  # 18: more than 255 actions and moves
BOARDS += [("breakthrough6_2p", f"breakthrough(rows={rows},columns={columns})") for rows, columns in SIZES]
BOARDS += [("clobber_2p", f"clobber(rows={rows},columns={columns})") for rows, columns in SIZES]
# Each size of Go takes six seconds to compile. Sides 3 and 7 fill one word of a set of points, 9 fills two, 11 three.
BOARDS += [("go7_2p", "go(board_size=3,komi=1.0)"), ("go7_2p", "go(board_size=11,komi=5.5,max_game_length=120)")]
LARGER_BOARDS = [
    pytest.param("go7_2p", f"go(board_size={side},komi=5.5,max_game_length=300)", marks=pytest.mark.slow)
    for side in (9, 19)
]
CONFIGS = pytest.mark.parametrize("config", [GAMES[key] for key in LIMITS], ids=list(LIMITS))


def theirs_of(config: GameConfig, **changes: object) -> GameConfig:
    return config.replace(engine="openspiel", **changes)


def assert_agreement(config: GameConfig, games: int) -> tuple[list[list[int]], int]:
    """Assert that random games agree in both engines. Return the moves of each game and the number of decisions."""
    ours, theirs = open_table(config, games), open_table(theirs_of(config), games)
    ours.reset(np.arange(games), range(games))
    decisions = 0
    for live, actions in at_random(theirs, games):
        assert alike([ours.seats()], [theirs.seats()])
        assert alike(ours.observe(live), theirs.observe(live))
        waiting = 1 - theirs.seats()[live]
        assert alike([ours.view(live, waiting)], [theirs.view(live, waiting)])
        ours.step(live, actions)
        decisions += len(live)
    (*our_ends, our_moves), (*their_ends, their_moves) = ends(ours, games), ends(theirs, games)
    assert alike(our_ends, their_ends)
    assert our_moves == their_moves
    everyone = np.arange(games)
    for seat in np.zeros(games, dtype=np.int8), np.ones(games, dtype=np.int8):
        assert alike([ours.view(everyone, seat)], [theirs.view(everyone, seat)])
    return our_moves, decisions


@CONFIGS
def test_games_agree_with_openspiel_move_for_move(config: GameConfig) -> None:
    moves, decisions = assert_agreement(config, 200)
    if config.key != "breakthrough6_2p":  # with so many pieces, moves are hardly ever forced
        assert sum(map(len, moves)) > decisions  # some were forced


@CONFIGS
def test_branches_are_copies_played_on(config: GameConfig) -> None:
    """``branch`` agrees with ``Table.branch``, which copies and steps."""
    games, ended = 30, 0
    config = config.replace(max_moves=max(LIMITS[config.key]) - 1)
    table, other = (open_table(config, 2 * games) for _ in range(2))
    for each in table, other:
        each.reset(np.arange(games), range(games))
    for live, actions in at_random(open_table(config, games), games):
        copies = live + games
        seats, returns = table.branch(live, actions, copies)
        assert alike((seats, returns), Table.branch(other, live, actions, copies))
        going = copies[seats != FINISHED]
        assert alike(table.observe(going), other.observe(going))
        assert alike(ends(table, 2 * games)[:-1], ends(other, 2 * games)[:-1])
        ended += int((seats == FINISHED).sum())
        for each in table, other:
            each.step(live, actions)
    assert ended == games


@pytest.mark.parametrize(("key", "game"), [*BOARDS, *LARGER_BOARDS])
def test_boards_of_other_sizes_agree_too(key: str, game: str) -> None:
    config = GAMES[key].replace(game=game)
    assert isinstance(open_table(config, 1), BoardTable)
    assert_agreement(config, 20)


@pytest.mark.parametrize(("key", "limit"), [(key, limit) for key in LIMITS for limit in LIMITS[key]])
def test_games_that_are_cut_off_agree_too(key: str, limit: int) -> None:
    moves, _ = assert_agreement(GAMES[key].replace(max_moves=limit), 100)
    assert max(map(len, moves)) <= limit


@CONFIGS
def test_slots_before_and_after_games_are_as_new(config: GameConfig) -> None:
    fresh, over = open_table(config, 1), open_table(config, 1)
    list(at_random(over, 1))
    for table in (fresh, over):
        assert table.seats()[0] == FINISHED
        with pytest.raises(IllegalAction, match=r"slot 0 .*\[\]"):
            table.step(SLOT, np.array([2], dtype=np.int32))
    table, fresh = open_table(config, 1), after(open_table(config, 1))
    list(at_random(table, 1))
    assert table.returns().any()
    table.reset(SLOT, [0])
    assert alike(table.observe(SLOT), fresh.observe(SLOT))
    (*used, moves), (*new, none) = ends(table, 1), ends(fresh, 1)
    assert alike(used, new)
    assert moves == none == [[]]


@pytest.mark.parametrize("limit", [None, 17])
@CONFIGS
def test_selfplay_by_either_engine_gives_identical_shards(config: GameConfig, limit: int | None) -> None:
    spec = open_table(config, 0).spec
    parameters = init_policy(config.network, spec.shape, seed=3)
    policy = Policy(config.network, spec.shape, parameters)
    schedule = selfplay_schedule(100, 2, [([1], 100)], (1.3, 1.0), 5)

    def played(engine: str):
        changed = config.replace(engine=engine, max_moves=limit)
        shard, outcomes = play_recorded(
            changed, [policy, RandomPlayer()], schedule, model="a" * 64, seed=5, worker="w", in_flight=64
        )
        same = dataclasses.replace(shard, meta=shard.meta.replace(rules_version="of either"))
        return put_shard(MemoryStore(), same), outcomes.histories

    assert played("flyball") == played("openspiel")


@CONFIGS
def test_specs_of_both_engines_differ_in_rules_version_only(config: GameConfig) -> None:
    ours, theirs = open_table(config, 0).spec, open_table(theirs_of(config), 0).spec
    for name in ("players", "actions", "observation_size", "observation_type", "bots"):
        assert getattr(ours, name) == getattr(theirs, name)
    for one, other in zip(ours.symmetries, theirs.symmetries, strict=True):
        assert one.name == other.name
        assert alike((one.observation, one.action, one.image), (other.observation, other.action, other.image))
    rules, _, name = ours.rules_version.partition(":")
    assert rules == "flyball-1"
    assert load_game(name, 2).get_parameters() == load_game(config.game, 2).get_parameters()
    assert theirs.rules_version.startswith("openspiel-")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"players": 3}, "played by 2"),
        ({"game": "connect_four(height=6)"}, "does not load"),
        ({"game": "othello(rows=6)"}, "does not load"),
        ({"game": "kuhn_poker"}, "no rules of its own for 'kuhn_poker'"),
        ({"selfplay": SelfplaySettings(rewards="shaped")}, "rewarded at its end"),
    ],
)
@CONFIGS
def test_a_configuration_that_does_not_fit_says_why(config: GameConfig, changes, complaint: str) -> None:
    with pytest.raises(UnknownGame, match=complaint):
        open_table(config.replace(**changes), 1)
