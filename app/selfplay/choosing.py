"""From what a player prefers to what it does: one pass over the legal actions of each position."""

from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games import Mask, Observations
from app.policy import NoLegalAction, Policy
from app.selfplay.players import BUILT_IN, Floats, Player

GREEDY = -1.0
"""In place of a point: take the most probable action, the first of several."""


class Choices(NamedTuple):
    """A player's decisions in K positions: actions, log-probabilities and values."""

    action: NDArray[np.int32]
    log_prob: Floats
    value: Floats


def ask(player: Player, obs: Observations, mask: Mask, temperature: float, points: NDArray[np.float64]) -> Choices:
    """Ask a player for its actions in K positions.

    Args:
        player: who decides.
        obs: [K, D].
        mask: [K, A] legal actions.
        temperature: divides the logits; 0 takes the most probable action, whose log-probability is then that at 1.
            Nothing to built-in players.
        points: [K] uniform in [0, 1): where each falls decides the action.

    Raises ``NoLegalAction``.
    """
    divisor = temperature or 1.0
    if not temperature and not isinstance(player, BUILT_IN):  # these play alike at any: greedy, the random one is not
        points = np.full(len(mask), GREEDY)
    if isinstance(player, Policy):  # its logits do: normalising and masking all actions would cost as much again
        logits = player.outputs(obs)
        action, log_prob = choose(logits, mask, 1 / divisor, points)
        value = logits[:, mask.shape[1]].copy()
    else:
        log_probs, value = player.forward(obs, mask, divisor)
        action, log_prob = choose(log_probs, mask, 1.0, points)
    if len(action) and action.min() < 0:
        raise NoLegalAction(
            f"Row {int(action.argmin())} of the legal mask is empty.",
            hint="Ask only for seats that are to move in games that are not over.",
        )
    return Choices(action, log_prob, value)


@kernel
def choose(logits: Floats, mask: Mask, scale: float, points: NDArray[np.float64]) -> tuple[NDArray[np.int32], Floats]:
    """Return the action that each point [K] falls on, and its log-probability [K]; -1 where none is legal.

    Args:
        logits: [K, A or more]; those of illegal actions do not matter.
        mask: [K, A] legal actions.
        scale: of the logits.
        points: in [0, 1), or ``GREEDY``.
    """
    rows, actions = mask.shape
    chosen, log_probs = np.full(rows, -1, dtype=np.int32), np.zeros(rows, dtype=np.float32)
    legal, shares = np.empty(actions, dtype=np.int64), np.empty(actions)
    for k in range(rows):
        count, top = 0, -np.inf
        for action in range(actions):
            if mask[k, action]:
                legal[count] = action
                top = max(top, logits[k, action])
                count += 1
        total = 0.0
        for j in range(count):
            shares[j] = exp((logits[k, legal[j]] - top) * scale)
            total += shares[j]
        if count:
            picked = _pick(shares[:count], points[k], total)
            chosen[k], log_probs[k] = legal[picked], log(shares[picked] / total)
    return chosen, log_probs


@kernel
def _pick(shares: NDArray[np.float64], point: float, total: float) -> int:
    """Return which of some shares, of which the highest is 1, the point falls on."""
    left, best = point * total, 0
    for j in range(len(shares)):
        if shares[j] > shares[best]:
            best = j
        left -= shares[j]
        if left < 0 and point >= 0:
            return j
    return best  # greedy; or rounding has used up the shares before the point
