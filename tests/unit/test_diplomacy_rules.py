"""Orders, phases, endings, scores, saved games and bots of Diplomacy."""

import json
from collections import Counter
from random import Random

import pytest

from flyball.app.core import BadUsage
from flyball.app.games.diplomacy.bots import BOTS
from flyball.app.games.diplomacy.game import Ending, Game
from flyball.app.games.diplomacy.maps import BadMap, parse_map
from flyball.app.games.diplomacy.orders import BadOrder, parse_order
from flyball.app.games.diplomacy.position import ADJUSTMENTS, RETREATS, opening
from flyball.app.games.diplomacy.saved import BadSavedGame, load, save
from flyball.app.games.diplomacy.scoring import material_scores, placed_scores, ranks, shares, zero_sum
from flyball.app.games.diplomacy.small import SMALL
from flyball.app.games.diplomacy.standard import STANDARD
from flyball.app.games.diplomacy.text import CLOSE, OPEN, history, preamble, prompt

BOARDS = [STANDARD, SMALL]


def played(board, seed=0, bots=("random",), **ending):
    rng, game = Random(seed), Game(board, Ending(**(ending or {"last_year": 1906})))
    while game.outcome is None:
        named = zip(board.powers, bots * len(board.powers), strict=False)
        game.play({name: BOTS[bot](game.position, power, rng) for power, (name, bot) in enumerate(named)})
    return game


def test_standard_map_has_its_known_size():
    assert (STANDARD.provinces, len(STANDARD.locations), len(STANDARD.centers)) == (75, 81, 34)
    assert [len(homes) for homes in STANDARD.homes] == [3, 3, 3, 3, 3, 4, 3]
    assert (len(STANDARD.start), STANDARD.seas.bit_count(), STANDARD.inland.bit_count()) == (22, 19, 14)
    assert sum(bool(coasts) for coasts in STANDARD.coasts) == 3
    assert opening(STANDARD).counts() == [(3, 3), (3, 3), (3, 3), (3, 3), (3, 3), (4, 4), (3, 3)]


def test_small_map_is_the_same_from_each_power():
    ring = ["ADE", "ARN", "DUN", "BAY", "BRO", "ELM", "CAP", "COV", "FEN"]
    seas = ["AMS", "BAS", "COS"]
    turned = {**dict(zip(ring, ring[3:] + ring[:3], strict=True)), **dict(zip(seas, seas[1:] + seas[:1], strict=True))}
    turned["ISL"] = "ISL"
    name = SMALL.locations.__getitem__
    for fleet in range(2):
        for at, steps in enumerate(SMALL.steps[fleet]):
            onto = SMALL.steps[fleet][SMALL.number[turned[name(at)]]]
            assert {turned[name(to)] for to in steps} == {name(to) for to in onto}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("AAA A: armies BBB\nBBB B: armies", "only one of"),
        ("AAA A: armies CCC", "no place"),
        ("AAA: armies BBB", "unreadable"),
    ],
)
def test_contradictory_map_is_refused(table, message):
    with pytest.raises(BadMap, match=message):
        parse_map("bad", table, {}, to_win=1)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a par - bur", "Write A PAR - BUR."),
        ("A PAR-BUR", "for instance"),
        ("A PRA H", "PRU"),
        ("F LON - NTH VIA", "VIA"),
        ("A PAR C A LON - NWY", "fleet convoys"),
        ("", "for instance"),
    ],
)
def test_bad_order_says_what_to_write(text, hint):
    with pytest.raises(BadOrder, match=hint):
        parse_order(STANDARD, text)


def test_spring_moves_take_no_centres_and_fall_moves_do():
    game, german = Game(STANDARD), 3
    game.play({"GERMANY": ["F KIE - DEN"]})
    assert (game.position.phase.name, len(game.position.centers_of(german))) == ("F1901M", 3)
    game.play({})
    assert (game.position.phase.name, game.position.builds(german)) == ("W1901A", 1)
    game.play({"GERMANY": ["F KIE B"]})
    assert (game.position.phase.name, len(game.position.units_of(german))) == ("S1902M", 4)


def test_orders_of_own_units_count_and_bad_usage_is_refused():
    game = Game(STANDARD)
    turn = game.play({"FRANCE": ["A PAR - BUR", "A PAR - PIC"], "ITALY": ["A MAR - SPA"]})
    assert STANDARD.number["BUR"] in game.position.units
    assert STANDARD.number["SPA"] not in game.position.units
    assert turn.results["A PAR"] == ()
    game = Game(STANDARD)
    with pytest.raises(BadUsage, match="no power"):
        game.play({"SPAIN": []})
    game.draw()
    assert game.outcome.kind == "draw"
    with pytest.raises(BadUsage, match="over"):
        game.play({})


def test_game_ends_by_solo_last_year_or_quiet_years():
    assert played(STANDARD, last_year=1902).outcome.kind == "limit"
    quiet = Game(SMALL, Ending(quiet_years=2))
    while quiet.outcome is None:
        quiet.play({})
    assert (quiet.outcome.kind, quiet.position.phase.name) == ("draw", "S1903M")
    solo = Game(SMALL, Ending(to_win=3))
    solo.play({"AMBER": ["F ARN - DUN"]})
    solo.play({})
    assert (solo.outcome.kind, solo.outcome.powers) == ("solo", (0,))


def test_chaos_bot_orders_moves_retreats_and_builds():
    for turn in played(STANDARD, bots=("chaos",)).turns[:2]:
        assert {order.kind for given in turn.orders for order in given} == {"-"}
    ordered = Counter()
    for turn in played(STANDARD, bots=("coordinated", "chaos")).turns:
        kind = turn.position.phase.kind
        for power, given in enumerate(turn.orders):
            if kind == RETREATS:
                lost = [at for at, one in turn.position.dislodged.items() if one.unit.power == power and one.retreats]
                assert {*lost} <= {STANDARD.province_of[order.at] for order in given}
            elif kind == ADJUSTMENTS and turn.position.builds(power) < 0:
                assert len(given) == -turn.position.builds(power)
            ordered[kind] += len(given)
    assert ordered[RETREATS]
    assert ordered[ADJUSTMENTS]


@pytest.mark.parametrize("bot", ["territorial", "coordinated"])
def test_planning_bots_take_more_centres_than_random_ones(bot):
    own = other = 0
    for seed in range(6):
        final = played(SMALL, seed, bots=(bot, "random", "random")).position
        own += len(final.centers_of(0))
        other += len(final.centers_of(1)) + len(final.centers_of(2))
    assert own > other


@pytest.mark.parametrize(
    ("function", "standings", "scores"),
    [
        (material_scores, [(10, 10), (9, 8), (0, 0)], [20.0, 13.0, 0.0]),  # with a bonus for the sole clear leader
        (material_scores, [(10, 10), (10, 8)], [15.0, 14.0]),
        (material_scores, [(9, 9), (8, 8)], [13.5, 12.0]),
        (placed_scores, [(18, 10), (8, 8), (8, 8), (0, 0)], [36 + 2 + 50 + 50, 37.6, 37.6, 10.0 - 30]),
        (ranks, [3.0, 1.0, 3.0, 2.0], [1, 4, 1, 3]),
        (lambda scores: zero_sum(shares(scores)), [4.0, 0.0, 0.0], [1.0, -0.5, -0.5]),
        (lambda scores: zero_sum(shares(scores)), [0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_scores_ranks_and_outcomes_follow_standings(function, standings, scores):
    assert function(standings) == scores


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_saved_game_loads_and_saves_the_same(board):
    game = played(board, 3)
    document = json.loads(json.dumps(save(game, "x")))
    loaded = load(document)
    assert save(loaded, "x") == document
    assert (loaded.position.phase, loaded.outcome) == (game.position.phase, game.outcome)
    assert set(document) == {"id", "map", "rules", "phases"}
    assert set(document["phases"][0]) == {"name", "state", "orders", "results", "messages"}
    for keep in range(1, len(game.turns), 5):  # a game that goes on from any phase
        partial = {**document, "phases": document["phases"][:keep]}
        again = load(partial)
        turn = game.turns[keep - 1]
        names = zip(board.powers, turn.orders, strict=True)
        assert again.play(dict(names)).results == turn.results


def test_game_that_ends_before_its_builds_keeps_its_phase():
    game = played(SMALL, to_win=3)
    document = json.loads(json.dumps(save(game, "x")))
    loaded = load(document)
    assert (loaded.position.phase, loaded.outcome) == (game.position.phase, game.outcome)
    assert loaded.position.phase.kind == ADJUSTMENTS
    assert save(loaded, "x") == document


@pytest.mark.parametrize(
    "document",
    [{}, {"map": "moon", "rules": [], "phases": []}, {"map": "small", "rules": [], "phases": []},
     {"map": "small", "rules": [], "phases": [{"name": "S1901M", "state": {"units": {}}}]}],
)  # fmt: skip
def test_document_that_is_no_saved_game_is_refused(document):
    with pytest.raises(BadSavedGame):
        load(document)


def test_prompt_has_the_parts_that_change_least_first():
    game = played(SMALL, 1, last_year=1902)
    first, second = (prompt(turn.position, 0, game.turns[:k]) for k, turn in enumerate(game.turns[:2]))
    common = preamble(SMALL)
    assert first.startswith(common)
    assert second.startswith(common + history(game.turns[:1]))
    other = prompt(game.turns[1].position, 1, game.turns[:1])
    assert other.replace("BASALT.", "AMBER.") == second
    assert second.endswith(OPEN)
    assert CLOSE not in second
