"""Hearts for tests: random games, and OpenSpiel's judgement of them."""

from collections.abc import Callable, Sequence

import numpy as np
import pyspiel

from flyball.app.games import FINISHED
from flyball.app.games.hearts.rules import HeartsRules
from flyball.app.games.hearts.table import HeartsTable

OURS = np.array([[0, 1, 3, 2][card % 4] * 13 + card // 4 for card in range(52)])  # OpenSpiel: hearts before spades
QUEEN, HEARTS = 36, 39

Choose = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def random_choice(rng: np.random.Generator) -> Choose:
    """Return a function that chooses evenly among the legal actions."""
    return lambda _seats, _obs, mask: (rng.random(mask.shape) * mask).argmax(axis=1).astype(np.int32)


def play(table: HeartsTable, seeds: Sequence[int], choose: Choose, watch=lambda *decisions: None) -> HeartsTable:
    """Play one game in each slot to its end.

    ``watch`` receives slots, seats, observations, masks and actions of every step.
    """
    table.reset(np.arange(len(seeds)), list(seeds))
    while len(live := np.flatnonzero(table.seats() != FINISHED)):
        obs, mask = table.observe(live)
        seats = table.seats()[live]
        actions = choose(seats, obs, mask)
        watch(live, seats, obs, mask, actions)
        table.step(live, actions)
    return table


def bits(mask: np.ndarray) -> np.ndarray:
    """Return masks [K, 52] as sets of cards [K]."""
    return mask.astype(np.int64) @ (1 << np.arange(52, dtype=np.int64))


class Referee:
    """OpenSpiel, which replays one hand at a time."""

    def __init__(self, rules: HeartsRules) -> None:
        self.game = pyspiel.load_game(rules.hand)
        self._bit = [1 << int(OURS[card]) for card in range(52)]

    def replay(self, history: Sequence[int]) -> tuple[list[tuple[int, int]], list[float], list[int]]:
        """Return decisions, returns, and the number of legal actions of each move.

        A decision is a seat and its legal cards as a set; moves without a choice are left out. Moves that OpenSpiel
        does not allow raise.
        """
        state, decisions, choices = self.game.new_initial_state(), [], []
        for action in history:
            seat, legal = state.current_player(), state.legal_actions()
            if action not in legal:
                raise AssertionError(f"{action} is not among {legal}")
            if seat >= 0:
                choices.append(len(legal))
                if len(legal) > 1:
                    decisions.append((seat, sum(self._bit[card] for card in legal)))
            state.apply_action(action)
        assert state.is_terminal()
        return decisions, state.returns(), choices


def cards_of(text: str) -> list[int]:
    """Return the card numbers of a text. 'QS 2C' is the queen of spades and the two of clubs."""
    return ["CDSH".index(card[1]) * 13 + "23456789TJQKA".index(card[0]) for card in text.split()]
