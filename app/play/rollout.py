"""Rollouts: many games at once, one forward pass a step per player.

A random number depends on the game and the step that it is for, not on when it is drawn. So a game's draws are the same
whichever games are played beside it, in any batches and on any number of processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import kernel
from flyball.app.core.legal import compact
from flyball.app.games import FINISHED, Mask, Observations, Table
from flyball.app.games.table import Floats
from flyball.app.learning.inference import NoLegalAction
from flyball.app.play.own_players import DecidingPlayer, Turn
from flyball.app.play.players import BUILT_IN, LogitPlayer, Player, PolicyPlayer, RandomPlayer
from flyball.app.play.recording import Decisions, Indices, Outcomes, ShardRecorder
from flyball.app.play.rng import Streams, draw_points, number_streams
from flyball.app.play.search import SearchPlayer

GREEDY = -1.0  # in place of a point: take the most probable action, the first of equals
HERO = 0  # the player whose decisions are recorded: the first of the list
_OPENING = -1  # player index during a game's random opening
_REFILL = 8  # slots are refilled once 1/8 of them are empty


class Choices(NamedTuple):
    """A player's actions, log-probabilities and values in K positions."""

    action: NDArray[np.int32]
    log_prob: Floats
    value: Floats
    policy: Floats | None = None  # [K, A] improved policy of a search; None without one


def ask(
    player: PolicyPlayer, obs: Observations, mask: Mask, temperature: float, points: NDArray[np.float64]
) -> Choices:
    """Return a player's choices in K positions. Raises ``NoLegalAction``.

    The choices are drawn by ``points`` [K], uniform in [0, 1). A temperature of 0 takes the most probable action, and
    returns its log-probability at a temperature of 1. Built-in players ignore the temperature.
    """
    divisor = temperature or 1.0
    if not temperature and not isinstance(player, BUILT_IN):
        points = np.full(len(mask), GREEDY)
    if isinstance(player, LogitPlayer):
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


def ask_any(player: Player, turn: Turn, temperature: float, points: NDArray[np.float64]) -> Choices:
    """Return any player's choices in a turn; log-probabilities and values are 0 if it has none. See ``ask``."""
    if isinstance(player, SearchPlayer):
        return Choices(*player.search(turn, points))
    if isinstance(player, DecidingPlayer):
        unknown = np.zeros(len(points), dtype=np.float32)
        return Choices(player.decide(turn, points), unknown, unknown)
    return ask(player, turn.obs, turn.mask, temperature, points)


@kernel
def choose(  # noqa: C901 - a row of the batch from top to bottom
    logits: Floats, mask: Mask, scale: float, points: NDArray[np.float64]
) -> tuple[NDArray[np.int32], Floats]:
    """Return the action that each point [K] selects, and its log-probability [K].

    The action is -1 where none is legal. ``logits`` [K, A or more] are multiplied by ``scale``; a point is in [0, 1),
    or ``GREEDY``.
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
            left, best, picked = points[k] * total, 0, -1
            for j in range(count):
                best = j if shares[j] > shares[best] else best
                left -= shares[j]
                if left < 0 and points[k] >= 0:
                    picked = j
                    break
            if picked < 0:  # greedy, or rounding left the point beyond the last share
                picked = best
            chosen[k], log_probs[k] = legal[picked], log(shares[picked] / total)
    return chosen, log_probs


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The games of a rollout."""

    seeds: Sequence[int]  # one for each of G games; the same seed deals the same cards
    seating: NDArray[np.int8]  # [G, P] which player sits where, for the whole game
    temperatures: Sequence[float]  # of each player: divides its logits; 0 always takes the most probable action
    seed: int  # of the players' choices, together with a game's number
    first: int = 0  # number of the first game; a schedule played in parts has the same games
    # Number of random decisions at the start of each game [G]. They are drawn from the game's own seed, so that games
    # of one seed have the same opening. They are not recorded. A game that would end in its opening has a shorter one,
    # because otherwise chance alone would decide it.
    openings: Indices | None = None


@dataclass(slots=True, eq=False)
class Rollout:
    """Plays all games of a schedule to their end. Dropping unfinished games would favour short ones."""

    table: Table  # it has a slot for each game played at once
    players: Sequence[Player]  # indexed by the seating; the hero is the first
    schedule: Schedule
    recorder: ShardRecorder | None = None  # takes the hero's decisions; None for a match
    progress: Callable[[int], None] = lambda _finished: None  # receives the number of finished games after every step
    _games: Indices = field(init=False)  # the game in each slot, -1 for none
    _steps: Indices = field(init=False)
    _choices: Streams = field(init=False)
    _deals: Streams = field(init=False)
    _over: int = field(init=False, default=0)
    _begun: int = field(init=False, default=0)

    def run(self) -> Outcomes:
        """Play all games and return how they ended."""
        games, players = self.schedule.seating.shape
        openings = self.schedule.openings
        outcomes = Outcomes(
            returns=np.zeros((games, players), dtype=np.float32),
            truncated=np.zeros(games, dtype=np.bool_),
            lengths=np.zeros(games, dtype=np.int64),
            openings=np.zeros(games, dtype=np.int64) if openings is None else openings.copy(),
            histories=[[] for _ in range(games)],
        )
        self._choices = number_streams(self.schedule.seed, self.schedule.first + np.arange(games))
        self._deals = np.array(self.schedule.seeds, dtype=np.uint64)
        slots = len(self.table.seats())
        self._games = np.full(slots, -1, dtype=np.int64)
        self._steps = np.zeros(games, dtype=np.int64)
        while self._over < games:
            self._begin()
            seats = self.table.seats()
            over = np.flatnonzero((seats == FINISHED) & (self._games >= 0))
            self._end(self._with_decisions(over, outcomes.openings), outcomes)
            live = np.flatnonzero((seats != FINISHED) & (self._games >= 0))
            if len(live):
                self._decide(live, outcomes.openings)
            self.progress(self._over)
        return outcomes

    def _begin(self) -> None:
        """Fill the empty slots once there are enough of them. Filling few slots costs as much as filling many."""
        empty = np.flatnonzero(self._games < 0)
        count = min(len(empty), len(self.schedule.seeds) - self._begun)
        if count and len(empty) * _REFILL >= len(self._games):
            slots, games = empty[:count], range(self._begun, self._begun + count)
            self._games[slots] = games
            self.table.reset(slots, [self.schedule.seeds[game] for game in games])
            self._begun += count

    def _with_decisions(self, slots: Indices, openings: Indices) -> Indices:
        """Return the ``slots`` of finished games with a decision; other games begin again with a shorter opening."""
        games = self._games[slots]
        steps = self._steps[games]
        random = (steps > 0) & (steps <= openings[games])
        again = games[random]
        if len(again):
            openings[again] = steps[random] - 1
            self._steps[again] = 0
            self.table.reset(slots[random], [self.schedule.seeds[game] for game in again.tolist()])
        return slots[~random]

    def _end(self, slots: Indices, outcomes: Outcomes) -> None:
        if not len(slots):
            return
        games = self._games[slots]
        outcomes.returns[games] = self.table.returns()[slots]
        outcomes.truncated[games] = self.table.truncated()[slots]
        outcomes.lengths[games] = self._steps[games]
        for slot, game in zip(slots.tolist(), games.tolist(), strict=True):
            outcomes.histories[game] = self.table.history(slot)
            seats = np.flatnonzero(self.schedule.seating[game] == HERO).astype(np.int8)
            if outcomes.truncated[game] and self.recorder is not None and len(seats):
                obs = self.table.view(np.full(len(seats), slot), seats)
                anything = np.ones((len(seats), self.table.spec.actions), dtype=np.bool_)  # values need no mask
                hero, values = self.players[HERO], np.zeros(len(seats), dtype=np.float32)
                if isinstance(hero, SearchPlayer):
                    values = hero.network.outputs(obs)[:, -1]
                elif not isinstance(hero, DecidingPlayer):  # a deciding player has no values
                    values = hero.forward(obs, anything)[1]
                self.recorder.cut_off(game, seats, values)
        self._games[slots] = -1
        self._over += len(slots)

    def _decide(self, live: Indices, openings: Indices) -> None:
        obs, mask = self.table.observe(live)
        games, seats = self._games[live], self.table.seats()[live]
        steps = self._steps[games]
        opening = steps < openings[games]
        points = draw_points(np.where(opening, self._deals[games], self._choices[games]), steps)
        sitting = np.where(opening, _OPENING, self.schedule.seating[games, seats])
        actions = np.empty(len(live), dtype=np.int32)
        for player in np.unique(sitting).tolist():
            rows = np.flatnonzero(sitting == player)
            is_alone = len(rows) == len(live)
            player_obs, player_mask = (obs, mask) if is_alone else (obs[rows], mask[rows])
            if player == _OPENING:
                actions[rows] = ask(RandomPlayer(), player_obs, player_mask, 1.0, points[rows]).action
                continue
            turn = Turn(player_obs, player_mask, self.table, live[rows])
            chosen = ask_any(self.players[player], turn, self.schedule.temperatures[player], points[rows])
            actions[rows] = chosen.action
            if player == HERO and self.recorder is not None:
                game, step = games[rows].astype(np.int32), steps[rows].astype(np.int32)
                earned = self.table.earned(live[rows], seats[rows])
                action, log_prob, value, search_policy = chosen
                policy = None if search_policy is None else search_policy[player_mask].astype(np.float16)
                legal = compact(player_mask)
                self.recorder.decided(
                    Decisions(game, seats[rows], step, player_obs, legal, action, log_prob, value, earned, policy)
                )
        self._steps[games] = steps + 1
        self.table.step(live, actions)
