"""The table's errors, limits and generic games, and the parity check."""

import re
from dataclasses import replace

import numpy as np
import pytest
from board_games import SLOT, recorded

from flyball.app.config import GAMES, GameConfig
from flyball.app.games import IllegalAction, UnknownGame, checker_for, open_table
from flyball.app.games.catalogue import openspiel_rules
from flyball.app.games.openspiel import OpenSpielTable, Rules
from flyball.app.games.parity import ParityChecker


def rules(name: str, players: int = 2, **changes) -> Rules:
    return openspiel_rules(GameConfig(key=f"checked_{players}p", game=name, players=players, **changes))


def play_first_legal(table):
    """Play one game, always the first legal action; return its record."""
    return recorded(table, np.argmax, seed=4)


def game(name, players=2, **kwargs):
    table = OpenSpielTable(rules(name, players), 1, **kwargs)
    table.reset(SLOT, [4])
    return table


def test_an_illegal_action_is_refused_and_a_slot_begins_afresh() -> None:
    table = game("tic_tac_toe")
    table.step(SLOT, np.array([4], dtype=np.int32))
    with pytest.raises(IllegalAction):
        table.step(SLOT, np.array([4], dtype=np.int32))
    table.reset(SLOT, [4])
    first = play_first_legal(table).history
    table.reset(SLOT, [4])
    assert table.history(0) == []
    assert not table.returns().any()
    assert play_first_legal(table).history == first


@pytest.mark.parametrize(
    ("name", "players", "complaint"),
    [
        ("no_such_game", 2, "has no game"),
        ("hex(size=3)", 2, "does not load"),
        ("maedn(players=4)", 3, "played by 4"),
        ("goofspiel", 2, "simultaneous"),
        ("nfg_game", 2, "does not load 'nfg_game': map::at"),  # an IndexError of OpenSpiel's
        ("coin_game", 2, "no tensor"),
        ("tiny_hanabi", 2, "cooperative"),
        ("hanabi", 2, "cooperative"),
        ("tiny_bridge_2p", 2, "cooperative"),
        ("trade_comm", 2, "cooperative"),  # declared as a general-sum game
        ("lewis_signaling", 2, "cooperative"),
    ],
)
def test_a_game_that_cannot_be_played_says_why(name: str, players: int, complaint: str) -> None:
    with pytest.raises(UnknownGame, match=complaint) as refused:
        rules(name, players)
    assert refused.value.hint


def test_hint_for_simultaneous_moves_names_a_game() -> None:
    with pytest.raises(UnknownGame) as refused:
        rules("goofspiel(num_cards=4)")
    playable = re.search("'(.*)'", refused.value.hint.replace("others'", ""))
    assert playable is not None
    assert rules(playable[1]).spec.actions == 4


def test_general_sum_game_is_learned_as_leads() -> None:
    """The winner bids 3 for 5: it gets 2, the other 0."""
    auction = rules("first_sealed_auction(max_value=5)")
    state = auction.game.new_initial_state()
    for action in (5, 1, 3, 0, 0):  # values of 5 and 1, bids of 3 and 0; the winner is seat 0
        state.apply_action(action)
    assert state.returns() == [2, 0]
    assert auction.spec.outcome_scale == 5
    assert auction.outcome(state) == pytest.approx([0.4, -0.4])


@pytest.mark.parametrize("name", ["liars_dice", "leduc_poker", "tiny_bridge_4p", "universal_poker"])
def test_hidden_game_is_learned_from_information_states(name: str) -> None:
    players = 4 if name.endswith("4p") else 2
    chosen, forgetful = rules(name, players), rules(name, players, observation="observation")
    told, states = chosen.told_apart(0)
    assert told == states
    assert name == "universal_poker" or forgetful.told_apart(0)[0] < states
    assert chosen.spec.encoding == "information_state"
    assert chosen.spec.rules_version != forgetful.spec.rules_version
    assert chosen.spec.shape != forgetful.spec.shape  # so models of one are refused by the other
    open_game = rules("mancala")
    assert (open_game.spec.encoding, open_game.told_apart(0)) == ("", None), "an open game is learned from its board"


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (GAMES["connect_four_2p"].replace(engine="openspiel"), "an encoding of Flyball's own"),
        (GAMES["hearts_4p"], "observations of its own"),
        (GameConfig(key="other_2p", game="mancala", players=2), "no tensor 'information_state'"),
    ],
)
def test_game_without_the_tensor_refuses_it(config: GameConfig, complaint: str) -> None:
    with pytest.raises(UnknownGame, match=complaint):
        open_table(config.replace(observation="information_state"), 0)


def test_a_game_over_the_limit_is_truncated_not_drawn() -> None:
    table = game("chinese_checkers(players=3)", 3, max_moves=5)
    record = play_first_legal(table)
    assert record.truncated
    assert len(record.history) == 5
    assert not record.returns.any()
    three = rules("chinese_checkers(players=3)", 3)
    assert ParityChecker(three, 5).failures(record) == []
    assert ParityChecker(three, 6).failures(record) != []


@pytest.mark.parametrize("name", ["y(board_size=4)", "leduc_poker", "backgammon"])
def test_a_game_without_a_codec_is_seen_as_openspiel_shows_it(name: str) -> None:
    table = game(name)
    assert table.spec.symmetries == ()
    assert ParityChecker(rules(name)).failures(play_first_legal(table)) == []


def test_chance_without_a_codec_follows_game_probabilities() -> None:
    table = OpenSpielTable(rules("pig(players=2,winscore=20)"), 400)
    table.reset(np.arange(400), range(400))
    table.step(np.arange(400), np.zeros(400, dtype=np.int32))
    rolls = np.array([table.history(slot)[1] for slot in range(400)])
    assert np.bincount(rolls, minlength=6).min() > 40  # 67 expected, sd 7


def finished(name: str, **changes) -> np.ndarray:
    table = OpenSpielTable(rules(name, **changes), 1)
    table.reset(SLOT, [4])
    return play_first_legal(table).returns


def test_setting_of_the_outcome_scale_divides_outcomes() -> None:
    declared, wider = finished("kuhn_poker"), finished("kuhn_poker", outcome_scale=4)
    assert np.array_equal(declared, 2 * wider)
    assert declared.any()
    with pytest.raises(UnknownGame, match=r"outcomes \[.*\], beyond outcome_scale = 0.5") as refused:
        finished("kuhn_poker", outcome_scale=0.5)
    assert "outcome_scale" in refused.value.hint
    hearts = GAMES["hearts_4p"]
    assert open_table(hearts, 0).spec.outcome_scale == 26
    with pytest.raises(UnknownGame, match="an outcome_scale of its own, 26"):
        open_table(hearts.replace(outcome_scale=13), 0)


@pytest.mark.parametrize(
    ("name", "players", "scale", "lowest"),
    [
        ("tic_tac_toe", 2, 1, -1),
        ("kuhn_poker", 2, 2, -1),  # two chips
        ("kuhn_poker(players=3)", 3, 4, -0.5),  # two chips of each opponent, at most two lost
        ("leduc_poker", 2, 13, -1),
        ("first_sealed_auction", 2, 10, -1),  # leads over the other, in a game that is not zero-sum
    ],
)
def test_spec_of_a_game_states_its_outcomes_units(name: str, players: int, scale: float, lowest: float) -> None:
    spec = rules(name, players).spec
    assert (spec.outcome_scale, spec.lowest_outcome, spec.highest_outcome) == (scale, lowest, 1)


def test_the_parity_check_names_what_is_wrong() -> None:
    record, checker = play_first_legal(game("connect_four")), checker_for(GAMES["connect_four_2p"])
    assert checker.failures(record) == []
    wrong = {
        "is not legal": {"history": [0, *[0] * len(record.history)]},
        "outcome": {"returns": -record.returns},
        "goes on": {"history": record.history[:-1]},
        "truncated": {"truncated": True},
        "observation": {"obs": 1 - record.obs},
        "mask": {"mask": np.ones_like(record.mask)},
        "was to move": {"seat": 1 - record.seat},
        "recorded, action": {"action": record.action + 1},
        "the game has": {"step": record.step + 1},
    }
    for complaint, change in wrong.items():
        assert any(complaint in failure for failure in checker.failures(replace(record, **change))), complaint
