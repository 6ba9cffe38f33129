"""Hearts by our own rules behind the ``Table`` port: thousands of games in one array."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.core import derive_seed
from app.games.hearts.bots import LEVELS
from app.games.hearts.cards import CARDS, SEATS
from app.games.hearts.encode import SIZE, observe, view
from app.games.hearts.play import DIRECTION_ORDER, GAME, HOLD, RECORD, deal_hands, play_hands, write_record
from app.games.hearts.rules import HeartsRules
from app.games.hearts.scoring import Rewards, add_shaping, earned_points, settle_hands
from app.games.table import FINISHED, Floats, IllegalAction, Indices, Mask, TableSpec, UnknownGame

VERSION = 1
"""Of this implementation: raised whenever the same actions could lead to another game or another observation."""

_DRAWN = -1


class HeartsTable:
    """N games of Hearts at once; see ``Table``. A game is one hand, or a match of several.

    The outcome of a hand is a seat's lead over the mean of the others, in units of 26 points: 1 for a moon. That of
    several hands is their mean; that of a match to a limit of points 1 for its only winner, else the seat's share of
    the win brought to a sum of 0.

    Args:
        rules: of every game.
        slots: N.
        rewards: how they are spread over a game; over a match to a limit they cannot be.

    Raises ``UnknownGame``.
    """

    def __init__(self, rules: HeartsRules, slots: int, rewards: Rewards = "terminal") -> None:
        if rewards != "terminal" and not rules.hands:
            raise UnknownGame(
                f"A match to {rules.limit} points is won or lost at its end and has no {rewards} rewards.",
                hint="Set rewards = 'terminal', or give the game a number of hands, for instance 'hearts(hands=4)'.",
            )
        self._rules, self._rewards = rules, rewards
        self._games = np.zeros(slots, dtype=GAME)
        self._games["mover"] = FINISHED
        self._seeds = np.zeros(slots, dtype=np.int64)
        self._earlier: dict[int, list[int]] = {}  # what the finished hands of a slot's match were
        self._hands = np.zeros(slots, dtype=np.int64)  # begun
        self._returns = np.zeros((slots, SEATS), dtype=np.float32)

    @property
    def spec(self) -> TableSpec:
        """See ``Table.spec``."""
        levels = {name: level(self._rules) for name, level in LEVELS.items()}
        return TableSpec(
            players=SEATS,
            actions=CARDS,
            observation_size=SIZE,
            observation_type=np.float32,
            rules_version=f"flyball-{VERSION}:{self._rules.game}",
            symmetries=(),
            heuristic=levels["normal"],
            levels=levels,
        )

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``."""
        if len(seeds) != len(slots):  # NumPy would give one seed to all
            raise ValueError(f"{len(slots)} slots cannot begin from {len(seeds)} seeds")
        self._seeds[slots] = seeds
        for slot in slots.tolist() if self._earlier else ():
            self._earlier.pop(slot, None)
        self._hands[slots] = 0
        self._returns[slots] = 0
        self._games["scores"][slots] = 0
        self._deal(slots, self._seeds[slots])

    def seats(self) -> NDArray[np.int8]:
        """See ``Table.seats``."""
        return np.array(self._games["mover"])

    def observe(self, slots: Indices) -> tuple[Floats, Mask]:
        """See ``Table.observe``."""
        obs = np.empty((len(slots), SIZE), dtype=np.float32)
        mask = np.empty((len(slots), CARDS), dtype=np.bool_)
        observe(self._games, _dense(slots), obs, mask.view(np.uint8))
        return obs, mask

    def view(self, slots: Indices, seats: NDArray[np.int8]) -> Floats:
        """See ``Table.view``."""
        obs = np.empty((len(slots), SIZE), dtype=np.float32)
        view(self._games, _dense(slots), np.ascontiguousarray(seats), obs)
        return obs

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        slots, over = _dense(slots), np.empty(len(slots), dtype=np.int64)
        played, ended = play_hands(self._games, slots, _dense(actions), over)
        if ended:
            self._settle(over[:ended])
        if played < len(slots):
            slot = int(slots[played])
            _, mask = self.observe(np.array([slot]))
            raise IllegalAction(int(actions[played]), slot, np.flatnonzero(mask[0]).tolist())

    def earned(self, slots: Indices, seats: NDArray[np.int8]) -> Floats:
        """See ``Table.earned``, and ``app.games.hearts.scoring`` for what is earned."""
        earned = np.zeros(len(slots), dtype=np.float32)
        slots, seats = _dense(slots), np.ascontiguousarray(seats)
        if self._rewards != "terminal":
            earned_points(self._games, slots, seats, self._rules.hands, earned)
        if self._rewards == "shaped":
            add_shaping(self._games, slots, seats, earned)
        return earned

    def returns(self) -> Floats:
        """See ``Table.returns``."""
        return self._returns.copy()

    def truncated(self) -> NDArray[np.bool_]:
        """See ``Table.truncated``; never: a hand has 52 plays, and a match ends."""
        return np.zeros(len(self._games), dtype=np.bool_)

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``: OpenSpiel's numbers, hand after hand."""
        record = np.empty(RECORD, dtype=np.int32)
        hand: list[int] = record[: write_record(self._games, slot, record)].tolist()
        return self._earlier.get(slot, []) + hand

    def _deal(self, slots: Indices, seeds: Indices) -> None:
        if not self._rules.pass_cards:
            directions = np.full(len(slots), HOLD)
        elif self._rules.hands == 1:
            directions = np.full(len(slots), _DRAWN)
        else:
            directions = np.array(DIRECTION_ORDER)[self._hands[slots] % len(DIRECTION_ORDER)]
        deal_hands(self._games, _dense(slots), seeds, directions, self._rules.option_set)
        self._hands[slots] += 1

    def _settle(self, over: Indices) -> None:
        """Count the hands in the slots ``over``, which have ended; end the game or deal the next."""
        rules = (self._rules.hands, self._rules.limit, int(self._rules.moon_for_shooter))
        going_on = settle_hands(self._games, over, self._hands, rules, self._returns)
        for slot in going_on.tolist():
            self._earlier[slot] = self.history(slot)
        if len(going_on):
            numbers = zip(self._seeds[going_on].tolist(), self._hands[going_on].tolist(), strict=True)
            seeds = [derive_seed(seed, "hand", number) for seed, number in numbers]
            self._deal(going_on, np.array(seeds, dtype=np.int64))


def _dense(numbers: NDArray[np.integer]) -> Indices:
    """Return slots or actions as the kernels are compiled for them."""
    return np.ascontiguousarray(numbers, dtype=np.int64)
