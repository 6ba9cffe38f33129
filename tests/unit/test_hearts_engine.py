"""Our own Hearts against OpenSpiel's, and invariants of any hand."""

from collections import defaultdict

import numpy as np
import pytest
from hearts_games import HEARTS, OURS, Referee, bits, play, random_choice

from flyball.app.config import GAMES
from flyball.app.core import derive_seed
from flyball.app.games import FINISHED, IllegalAction, UnknownGame, open_table
from flyball.app.games.hearts.rules import HeartsRules, parse_rules
from flyball.app.games.hearts.table import HeartsTable
from flyball.app.games.openspiel import OpenSpielTable
from flyball.app.games.tricks import hearts as codec

HAND = HeartsRules()
VARIANTS = {
    "usual": HAND,
    "the queen does not break hearts": HeartsRules(qs_breaks_hearts=False),
    "hearts need not be broken": HeartsRules(must_break_hearts=False),
    "points on the first trick": HeartsRules(no_pts_on_first_trick=False),
    "nothing is passed": HeartsRules(pass_cards=False),
}


def compare(rules: HeartsRules, seeds, rng) -> int:
    """Play random hands, compare each with OpenSpiel, and count the moves."""
    seen = defaultdict(list)

    def watch(slots, seats, _obs, mask, _actions):
        for slot, seat, legal in zip(slots.tolist(), seats.tolist(), bits(mask).tolist(), strict=True):
            seen[slot].append((seat, legal))

    table = play(HeartsTable(rules, len(seeds)), seeds, random_choice(rng), watch)
    referee, moves = Referee(rules), 0
    for slot in range(len(seeds)):
        decisions, returns, choices = referee.replay(table.history(slot))
        assert seen[slot] == decisions, f"seed {seeds[slot]}"
        lead = np.array(returns) - (np.sum(returns) - np.array(returns)) / 3
        np.testing.assert_allclose(table.returns()[slot], lead / 26, atol=1e-6)
        moves += len(choices)
    return moves


@pytest.mark.parametrize("rules", VARIANTS.values(), ids=VARIANTS)
def test_hands_agree_with_openspiel_move_for_move(rules: HeartsRules) -> None:
    compare(rules, range(60), np.random.default_rng(1))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_100_000_hands_agree_with_openspiel_move_for_move() -> None:
    rules = list(VARIANTS.values())
    shares = [60_000, 10_000, 10_000, 10_000, 10_000]
    moves = 0
    for number, (variant, hands) in enumerate(zip(rules, shares, strict=True)):
        for first in range(0, hands, 2000):
            rng = np.random.default_rng([number, first])
            moves += compare(variant, range(first, first + 2000), rng)
    print(f"{sum(shares):,} hands, {moves:,} moves")  # noqa: T201


@pytest.mark.parametrize("qs_breaks_hearts", [True, False])
def test_the_observation_is_what_openspiel_shows(qs_breaks_hearts: bool) -> None:
    rules, sampled = HeartsRules(qs_breaks_hearts=qs_breaks_hearts), defaultdict(list)

    def watch(slots, seats, obs, _mask, _actions):
        for slot, seat, row in zip(slots.tolist(), seats.tolist(), obs, strict=True):
            sampled[slot].append((seat, row))

    table = play(HeartsTable(rules, 12), range(12), random_choice(np.random.default_rng(0)), watch)
    referee, encode = Referee(rules), codec(qs_breaks_hearts).encode
    for slot in range(12):
        state, tensors = referee.game.new_initial_state(), []
        for action in table.history(slot):
            if state.current_player() >= 0 and len(state.legal_actions()) > 1:
                tensors.append(np.array(state.information_state_tensor(), dtype=np.float32))
            state.apply_action(action)
        seats = np.array([seat for seat, _ in sampled[slot]], dtype=np.int8)
        assert np.array_equal(encode(np.stack(tensors), seats), np.stack([row for _, row in sampled[slot]]))


def test_the_same_position_is_seen_alike_from_every_seat() -> None:
    """Turning the table by a seat changes nothing for the mover."""
    table = play(HeartsTable(HAND, 1), [3], random_choice(np.random.default_rng(0)))
    views = table.view(np.zeros(4, dtype=np.int64), np.arange(4, dtype=np.int8))
    scores = views[:, 179:183]
    for seat in range(4):
        np.testing.assert_array_equal(scores[seat], np.roll(scores[0], -seat))
        np.testing.assert_array_equal(views[seat, :104], views[0, :104])  # no cards in hand, all played
    assert scores[0].sum() == pytest.approx(0.26)


def test_passing_directions_are_even_and_so_is_the_deal() -> None:
    table = HeartsTable(HAND, 4000)
    table.reset(np.arange(4000), [derive_seed(1, k) for k in range(4000)])
    directions, owners = np.zeros(4), np.zeros((52, 4))
    for slot in range(4000):
        direction, *deal = table.history(slot)[:53]
        directions[direction] += 1
        owners[OURS[deal], np.arange(52) % 4] += 1
    for counts in (directions, owners):
        assert np.abs(counts - 1000).max() < 5 * np.sqrt(4000 * 3 / 16)


def test_illegal_action_is_refused_after_earlier_games_moved() -> None:
    table = HeartsTable(HAND, 3)
    table.reset(np.arange(3), [1, 2, 3])
    mask = table.observe(np.arange(3))[1]
    actions = mask.argmax(axis=1).astype(np.int32)
    actions[1] = mask[1].argmin()
    before = [table.history(slot) for slot in range(3)]
    with pytest.raises(IllegalAction, match=f"Action {actions[1]} in slot 1"):
        table.step(np.arange(3), actions)
    assert [table.history(slot) == earlier for slot, earlier in enumerate(before)] == [False, True, True]
    for wrong in (-1, 52, 1 << 20):
        with pytest.raises(IllegalAction, match=f"Action {wrong} "):
            table.step(np.array([1]), np.array([wrong]))


def test_empty_or_finished_slot_moves_nothing_until_it_is_reset() -> None:
    table = HeartsTable(HAND, 2)
    assert table.seats().tolist() == [FINISHED, FINISHED]
    with pytest.raises(IllegalAction):
        table.step(np.array([0]), np.array([0]))
    play(table, [7, 8], random_choice(np.random.default_rng(1)))
    first = table.history(1)
    table.reset(np.array([1]), [8])
    assert table.history(1) == first[:53] != first
    assert table.returns().any(axis=1).tolist() == [True, False]


def test_a_match_goes_round_the_directions_and_ends_at_its_limit() -> None:
    rules = HeartsRules(hands=0, limit=100)
    table = play(HeartsTable(rules, 40), range(40), random_choice(np.random.default_rng(3)))
    for slot in range(40):
        scores, directions = np.zeros(4), []
        for hand in hands_of(table.history(slot)):
            assert scores.max() < 100
            directions.append(hand[0])
            scores += 26 - np.array(Referee(rules).replay(hand)[1])
        assert scores.max() >= 100
        assert directions == ([1, 3, 2, 0] * 9)[: len(directions)]
        winners = scores == scores.min()
        shares = winners / winners.sum()
        np.testing.assert_allclose(table.returns()[slot], (4 * shares - 1) / 3, atol=1e-6)


def hands_of(history):
    hands = []
    while history:
        length = 105 + 12 * (history[0] != 0)
        hands.append(history[:length])
        history = history[length:]
    return hands


@pytest.mark.parametrize("moon_for_shooter", [False, True])
def test_a_match_of_four_hands_is_worth_their_mean(moon_for_shooter: bool) -> None:
    rules = HeartsRules(hands=4, moon_for_shooter=moon_for_shooter)
    table = play(HeartsTable(rules, 60), range(60), random_choice(np.random.default_rng(3)))
    for slot in range(60):
        hands = hands_of(table.history(slot))
        assert len(hands) == 4
        returns = np.array([Referee(rules).replay(hand)[1] for hand in hands])
        outcomes = (returns - (returns.sum(axis=1, keepdims=True) - returns) / 3) / 26
        np.testing.assert_allclose(table.returns()[slot], outcomes.mean(axis=0), atol=1e-6)


def test_match_observation_shows_scores_that_never_decrease() -> None:
    rules, scores = HeartsRules(hands=3), []

    def watch(_slots, seats, obs, _mask, _actions):
        scores.append(np.roll(obs[0, 179:183], seats[0]) * 100)

    table = play(HeartsTable(rules, 1), [11], random_choice(np.random.default_rng(3)), watch)
    total = sum(26 - np.array(Referee(rules).replay(hand)[1]) for hand in hands_of(table.history(0))[:2])
    assert any(np.allclose(seen, total, atol=1e-4) for seen in scores)
    assert np.diff(np.array(scores).sum(axis=1)).min() > -1e-4  # no points are ever forgotten (no moon here)


@pytest.mark.parametrize("moon_for_shooter", [False, True])
def test_a_moon_is_the_best_outcome_and_worth_one_either_way(moon_for_shooter: bool) -> None:
    """Seat 0 always tries to take everything; others duck and pass their hearts."""
    table = HeartsTable(HeartsRules(moon_for_shooter=moon_for_shooter), 3000)

    def greedy(seats, obs, mask):
        high = np.where(seats == 0, 1, -1)[:, None] * (np.arange(52) % 13 + 1)
        hearts = (np.arange(52) >= HEARTS) * np.where(obs[:, 185] > 0, 20, 0)[:, None]
        return np.where(mask, high + np.where((seats == 0)[:, None], hearts, -hearts), -99).argmax(axis=1)

    play(table, range(3000), greedy)
    moons = table.returns()[table.returns().max(axis=1) > 0.99]
    assert len(moons)
    for outcome in moons:
        assert sorted(outcome.tolist()) == pytest.approx([-1 / 3, -1 / 3, -1 / 3, 1])


def test_game_strings_name_the_rules() -> None:
    assert parse_rules("hearts") == HAND
    assert HAND.game == "hearts"
    rules = parse_rules("hearts(hands=0,limit=50,qs_breaks_hearts=false)")
    assert rules == HeartsRules(hands=0, limit=50, qs_breaks_hearts=False)
    assert parse_rules(rules.game) == rules
    assert rules.hand == "hearts(qs_breaks_hearts=false)"
    config = GAMES["hearts_4p"]
    assert open_table(config, 0).spec.rules_version == "flyball-1:hearts"
    assert isinstance(open_table(config.replace(engine="openspiel"), 1), OpenSpielTable)
    for change in ({"max_moves": 5}, {"players": 3}):
        with pytest.raises(UnknownGame, match="played by 4"):
            open_table(config.replace(**change), 1)


@pytest.mark.parametrize(
    ("game", "complaint"),
    [
        ("chess", "no rules of its own for 'chess'"),
        ("hearts(", "no game string"),
        ("hearts(jd_bonus=true)", "jd_bonus=True"),
        ("hearts(hands=true)", "hands=True"),
        ("hearts(limit=-5)", "limit=-5"),
        ("hearts(pass_cards=maybe)", "pass_cards=maybe"),
    ],
)
def test_a_game_that_is_not_ours_is_refused_with_what_is(game: str, complaint: str) -> None:
    with pytest.raises(UnknownGame, match=complaint):
        parse_rules(game)
