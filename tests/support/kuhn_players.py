"""An equilibrium of Kuhn poker, as a player.

A best response to it gains nothing. Kuhn (1950) gives all equilibria. In this one the first player never bets.
"""

import numpy as np

PASS, BET = 0, 1
JACK, QUEEN, KING = range(3)
FIRST_CALLS = {JACK: 0.0, QUEEN: 1 / 3, KING: 1.0}  # after a pass and a bet
SECOND_BETS = {JACK: 1 / 3, QUEEN: 0.0, KING: 1.0}  # after a pass
SECOND_CALLS = {JACK: 0.0, QUEEN: 1 / 3, KING: 1.0}  # after a bet


class Equilibrium:
    """Plays by OpenSpiel's information state.

    It holds the seat [2], the card [3], and for each of 3 moves a pass or a bet [2].
    """

    def forward(self, obs, mask, temperature=1.0):
        bets = np.array([self._bet(row) for row in obs])
        weights = np.stack([1 - bets, bets], axis=1)
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(weights), -1e9).astype(np.float32), np.zeros(len(obs), np.float32)

    def _bet(self, row) -> float:
        seat, card = int(row[:2].argmax()), int(row[2:5].argmax())
        moves = [int(pair.argmax()) for pair in row[5:].reshape(-1, 2) if pair.any()]
        if seat == 0:
            return FIRST_CALLS[card] if moves else 0.0
        return SECOND_CALLS[card] if moves == [BET] else SECOND_BETS[card]


def equilibrium(config, options):
    return Equilibrium()
