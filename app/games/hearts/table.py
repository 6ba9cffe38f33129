"""Tables of Hearts by our own rules, with outcomes and rewards.

A table holds thousands of games in one array, and reports what a seat has earned so far (``Table.earned``). The reward
of a decision is the difference to the seat's next decision, and the last reward is the difference to the outcome. So
the rewards of an episode always sum to its outcome. For games of one hand, the modes of earning are:

- ``terminal``: nothing is earned before the end.
- ``per_trick``: a seat that takes p points earns -p / 26, and each other seat a third of p / 26. This matches the
  outcome, the lead over the mean of the others. The last reward corrects for a moon.
- ``shaped``: as ``per_trick``, plus 0.02 for each suit missing in the seat's hand, less 0.05 for each lead of unbroken
  hearts while holding another suit (legal only without ``must_break_hearts``). The last reward takes both back, so they
  are a potential (Ng et al. 1999) and the best policy stays the same.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import derive_seed
from flyball.app.core.kernels import kernel
from flyball.app.games.hearts.bots import LEVELS
from flyball.app.games.hearts.cards import CARDS, POINTS, RANKS, SEATS, SUIT, SUITS
from flyball.app.games.hearts.encode import SIZE, observe, view
from flyball.app.games.hearts.play import (
    DIRECTION_ORDER,
    GAME,
    HOLD,
    Games,
    deal_hands,
    hand_history,
    play_hands,
    result,
)
from flyball.app.games.hearts.rules import HeartsRules
from flyball.app.games.table import (
    FINISHED,
    Floats,
    IllegalAction,
    Indices,
    Mask,
    Seats,
    Table,
    TableSpec,
    UnknownGame,
    dense,
)

VERSION = 1
"""Version of this implementation. It is raised when the same actions could give another game or observation."""

Rewards = Literal["terminal", "per_trick", "shaped"]
VOID_BONUS, HEARTS_PENALTY = 0.02, 0.05
_DRAWN = -1  # stands for a random direction of passing


class HeartsTable(Table):
    """N games of Hearts at once.

    A game is one hand, or a match of several.

    The outcome of a hand is a seat's lead over the mean of the others, in units of 26 points: 1 for a moon. The outcome
    of several hands is their mean. In a match to a limit of points, each of k winners gets (4 / k - 1) / 3, and each
    other seat -1 / 3.

    Raises ``UnknownGame`` for rewards other than "terminal" in a match to a limit.
    """

    def __init__(self, rules: HeartsRules, slots: int, rewards: Rewards = "terminal") -> None:
        if rewards != "terminal" and not rules.hands:
            raise UnknownGame(
                f"A match to {rules.limit} points is won or lost at its end and has no {rewards} rewards.",
                hint="Set rewards = 'terminal', or give the game a number of hands, for instance 'hearts(hands=4)'.",
            )
        levels = {name: level(rules) for name, level in LEVELS.items()}
        version = f"flyball-{VERSION}:{rules.game}"
        self.spec = TableSpec(
            SEATS,
            CARDS,
            SIZE,
            np.float32,
            version,
            (),
            levels,
            outcome_scale=POINTS if rules.hands else 1.0,
            lowest_outcome=-1.0 if rules.hands else -1 / 3,
            dealt=True,
        )
        self._rules, self._rewards = rules, rewards
        self._games = np.zeros(slots, dtype=GAME)
        self._games["mover"] = FINISHED
        self._seeds = np.zeros(slots, dtype=np.int64)
        self._earlier: dict[int, list[int]] = {}  # actions of the finished hands of a slot's match
        self._hands = np.zeros(slots, dtype=np.int64)  # hands begun
        self._returns = np.zeros((slots, SEATS), dtype=np.float32)

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``."""
        if len(seeds) != len(slots):  # otherwise NumPy would broadcast a single seed to all
            raise ValueError(f"{len(slots)} slots cannot begin from {len(seeds)} seeds")
        self._seeds[slots] = seeds
        for slot in slots.tolist() if self._earlier else ():
            self._earlier.pop(slot, None)
        self._hands[slots] = 0
        self._returns[slots] = 0
        self._games["scores"][slots] = 0
        self._deal(slots, self._seeds[slots])

    def seats(self) -> Seats:
        """See ``Table.seats``."""
        return np.array(self._games["mover"])

    def observe(self, slots: Indices) -> tuple[Floats, Mask]:
        """See ``Table.observe``."""
        obs = np.empty((len(slots), SIZE), dtype=np.float32)
        mask = np.empty((len(slots), CARDS), dtype=np.bool_)
        observe(self._games, dense(slots), obs, mask.view(np.uint8))
        return obs, mask

    def view(self, slots: Indices, seats: Seats) -> Floats:
        """See ``Table.view``."""
        obs = np.empty((len(slots), SIZE), dtype=np.float32)
        view(self._games, dense(slots), np.ascontiguousarray(seats), obs)
        return obs

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        slots, over = dense(slots), np.empty(len(slots), dtype=np.int64)
        played, ended = play_hands(self._games, slots, dense(actions), over)
        if ended:
            self._settle(over[:ended])
        if played < len(slots):
            slot = int(slots[played])
            _, mask = self.observe(np.array([slot]))
            raise IllegalAction(int(actions[played]), slot, np.flatnonzero(mask[0]).tolist())

    def earned(self, slots: Indices, seats: Seats) -> Floats:
        """See ``Table.earned``; the module describes the modes."""
        if self._rewards == "terminal":
            return super().earned(slots, seats)
        shaped = self._rewards == "shaped"
        return _earned(self._games, dense(slots), np.ascontiguousarray(seats), self._rules.hands, shaped)

    def returns(self) -> Floats:
        """See ``Table.returns``."""
        return self._returns.copy()

    def truncated(self) -> Mask:
        """See ``Table.truncated``; no game is, because there is no move limit."""
        return np.zeros(len(self._games), dtype=np.bool_)

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``; actions have OpenSpiel's numbers, hand after hand."""
        return self._earlier.get(slot, []) + hand_history(self._games[slot])

    def _deal(self, slots: Indices, seeds: Indices) -> None:
        if not self._rules.pass_cards:
            directions = np.full(len(slots), HOLD)
        elif self._rules.hands == 1:
            directions = np.full(len(slots), _DRAWN)
        else:
            directions = np.array(DIRECTION_ORDER)[self._hands[slots] % len(DIRECTION_ORDER)]
        deal_hands(self._games, dense(slots), seeds, directions, self._rules.option_set)
        self._hands[slots] += 1

    def _settle(self, over: Indices) -> None:
        """Score the ended hands in the slots ``over``; end their games, or deal their next hands."""
        rules = (self._rules.hands, self._rules.limit, int(self._rules.moon_for_shooter))
        going_on = _settle_hands(self._games, over, self._hands, rules, self._returns)
        for slot in going_on.tolist():
            self._earlier[slot] = self.history(slot)
        if len(going_on):
            numbers = zip(self._seeds[going_on].tolist(), self._hands[going_on].tolist(), strict=True)
            seeds = [derive_seed(seed, "hand", number) for seed, number in numbers]
            self._deal(going_on, np.array(seeds, dtype=np.int64))


def moons(outcomes: Floats) -> Mask:
    """Return which seats [G, 4] shot the moon. ``outcomes`` [G, 4] are those of single hands; a moon's outcome is 1."""
    shot: Mask = outcomes > 1 - 1 / POINTS
    return shot


def hand_points(outcomes: Floats, *, moon_for_shooter: bool) -> Indices:
    """Return points [G, 4] of single hands: a moon scores 26 for the others, or ``moon_for_shooter`` -26 for itself."""
    shooter = moons(outcomes)
    moon = np.where(shooter, -POINTS, 0) if moon_for_shooter else np.where(shooter, 0, POINTS)
    plain = np.rint((POINTS - (SEATS - 1) * POINTS * outcomes.astype(np.float64)) / SEATS).astype(np.int64)
    return np.where(shooter.any(axis=1, keepdims=True), moon, plain)


@kernel
def _earned(games: Games, slots: Indices, seats: Seats, hands: int, shaped: int) -> Floats:
    """Return the rewards [K] of ``seats`` [K] so far, in games of ``hands`` hands."""
    out = np.empty(len(slots), dtype=np.float32)
    for k in range(len(slots)):
        game, seat = games[slots[k]], seats[k]
        total = 0
        for other in range(SEATS):
            total += game["scores"][other] + game["points"][other]
        out[k] = _lead(game["scores"][seat] + game["points"][seat], total, hands)
        if shaped:
            for suit in range(SUITS):
                if not game["hand"][seat] & SUIT << suit * RANKS:
                    out[k] += VOID_BONUS
            out[k] -= HEARTS_PENALTY * game["leads"][seat]
    return out


@kernel
def _lead(own: int, total: int, hands: int) -> float:
    """Return a seat's lead over the mean of the others per hand, in units of 26 points; ``total`` is all points."""
    return ((total - own) / (SEATS - 1) - own) / (POINTS * hands)


@kernel
def _settle_hands(
    games: Games, slots: Indices, begun: Indices, rules: tuple[int, int, int], returns: Floats
) -> Indices:
    """Score the ended hands in ``slots``; return slots whose games go on.

    Args:
        games: [N]; the scores of games that go on are updated.
        slots: distinct.
        begun: [N] hands begun in each game.
        rules: ``hands``, ``limit`` and ``moon_for_shooter`` of ``HeartsRules``.
        returns: [N, 4], to which the outcomes of ended games are written.
    """
    hands, limit, moon_for_shooter = rules
    number, going_on, scores = 0, np.empty(len(slots), dtype=np.int64), np.empty(SEATS, dtype=np.int64)
    for k in range(len(slots)):
        slot = slots[k]
        game = games[slot]
        for seat in range(SEATS):
            scores[seat] = game["scores"][seat] + result(game, seat, moon_for_shooter)
        if begun[slot] == hands or (not hands and scores.max() >= limit):
            best, total = scores.min(), scores.sum()
            winners = (scores == best).sum()
            for seat in range(SEATS):
                share = 1 / winners if scores[seat] == best else 0.0
                returns[slot, seat] = _lead(scores[seat], total, hands) if hands else (SEATS * share - 1) / (SEATS - 1)
        else:
            game["scores"][:] = scores
            going_on[number] = slot
            number += 1
    return going_on[:number]
