"""Parity check of our own Hearts, on right and wrong records."""

from dataclasses import replace

import numpy as np
from hearts_games import play, random_choice

from flyball.app.config import GAMES
from flyball.app.games import GameRecord, checker_for
from flyball.app.games.hearts.rules import parse_rules
from flyball.app.games.hearts.table import HeartsTable


def played(game: str, seed: int):
    """Return a game's configuration and the record of a random game."""
    config = GAMES["hearts_4p"].replace(game=game)
    rows = []

    def watch(_slots, seats, obs, mask, actions):
        rows.append((len(rows), seats[0], actions[0], obs[0], mask[0]))

    table = play(HeartsTable(parse_rules(game), 1), [seed], random_choice(np.random.default_rng(seed)), watch)
    step, seat, action, obs, mask = (np.array(column) for column in zip(*rows, strict=True))
    return config, GameRecord(table.history(0), table.returns()[0], False, step, seat, action, obs, mask, seed=0)


def test_the_parity_check_names_what_is_wrong_with_a_match() -> None:
    config, record = played("hearts(hands=3)", 1)
    assert checker_for(config).failures(record) == []
    again = record.history[:117]  # the first hand passes to the left, so another one of that kind is the fourth too
    turned = [*record.history[:117], 1, *record.history[118:]]
    seen = record.obs.copy()
    seen[-1, 179] += 0.01
    wrong = {
        "is over": replace(record, history=[*record.history, *again]),
        "direction 1, not 3": replace(record, history=turned),
        "goes on": replace(record, history=record.history[:-40]),
        "outcome": replace(record, returns=-record.returns),
        "observation": replace(record, obs=seen),
    }
    for complaint, broken in wrong.items():
        assert any(complaint in failure for failure in checker_for(config).failures(broken)), complaint
