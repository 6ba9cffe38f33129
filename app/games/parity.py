"""Parity check: recorded games are played again, move by move, and compared.

OpenSpiel replays its games and those by our own rules. A replay uses only the codec and the outcome of the batched
adapter, and plays one game at a time on OpenSpiel's states. All other games are played again by their own rules.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flyball.app.games.hearts.cards import CARDS, POINTS, SEATS
from flyball.app.games.hearts.encode import SCORE_UNIT, SCORES
from flyball.app.games.hearts.play import DIRECTION_ORDER, HOLD, PASSED
from flyball.app.games.hearts.rules import HeartsRules
from flyball.app.games.hearts.table import hand_points
from flyball.app.games.openspiel import CHANCE, Rules
from flyball.app.games.table import FINISHED, TOLERANCE, Floats, Mask, Observations, Seats, Table


@dataclass(frozen=True, slots=True, eq=False)
class GameRecord:
    """One recorded game, with K decisions of the recorded seats in order."""

    history: Sequence[int]  # all actions, chance and forced moves included, in the numbers of the rules
    returns: Floats  # [P] the outcome
    truncated: bool  # whether the game was cut off
    step: NDArray[np.int32]  # [K] number of the decision within the game
    seat: Seats  # [K] the seat that decided
    action: NDArray[np.int32]  # [K] the chosen actions, in the seat's numbers
    obs: Observations  # [K, D] the seat's observations
    mask: Mask  # [K, A] the legal actions
    seed: int  # the game's, from which a table draws chance


class Checker(Protocol):
    """Compares recorded games with another play of them."""

    against: str
    """Name, for people, of the rules that play the games again; at most 100 characters."""

    def failures(self, record: GameRecord) -> Sequence[str]:
        """Return a message for each difference between a record and its replay."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedDecision:
    """One decision in a replay, with actions in the seat's numbers."""

    seat: int
    legal: frozenset[int]
    action: int
    obs: Observations  # [D] the seat's observation


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedGame:
    """Result of replaying a game."""

    decisions: list[ReplayedDecision]
    moves: int  # decisions and forced moves
    outcome: Floats | None  # [P] the outcome, None if the game is not over


class IllegalMove(ValueError):
    """A recorded move that OpenSpiel does not allow, whose message becomes a parity failure."""


class ParityChecker(Checker):
    """Replay of recorded games on OpenSpiel, with an optional move limit."""

    against = "openspiel"

    def __init__(self, rules: Rules, max_moves: int | None = None) -> None:
        self._rules = rules
        self._limit = max_moves

    def failures(self, record: GameRecord) -> list[str]:
        """See ``Checker.failures``."""
        try:
            replay = self.replay(record.history)
        except IllegalMove as illegal:
            return [str(illegal)]
        return [*self._ending(replay, record), *_row_differences(replay.decisions, record)]

    def replay(self, history: Sequence[int]) -> ReplayedGame:
        """Replay a history of actions on OpenSpiel. Raises ``IllegalMove``."""
        game, recalls = self._rules.game, self._rules.recalls
        state, moves = game.new_initial_state(), 0
        decided: list[tuple[int, list[int], int]] = []
        tensors: list[list[float]] = []
        for number, action in enumerate(history):
            legal = [] if state.is_terminal() else state.legal_actions()
            if action not in legal:
                raise IllegalMove(f"move {number}: action {action} is not legal; legal are {legal}")
            seat = state.current_player()
            if seat != CHANCE:
                moves += 1
                if len(legal) > 1:
                    decided.append((seat, legal, action))
                    tensors.append(state.information_state_tensor(seat) if recalls else state.observation_tensor(seat))
            state.apply_action(action)
        seats, codec = np.array([seat for seat, *_ in decided], dtype=np.int8), self._rules.codec
        observations = codec.encode(np.array(tensors, dtype=np.float32), seats) if decided else ()
        decisions = [
            ReplayedDecision(
                seat, frozenset(codec.from_game[seat, legal].tolist()), int(codec.from_game[seat, chosen]), obs
            )
            for (seat, legal, chosen), obs in zip(decided, observations, strict=True)
        ]
        return ReplayedGame(decisions, moves, self._rules.outcome(state) if state.is_terminal() else None)

    def _ending(self, replay: ReplayedGame, record: GameRecord) -> Iterator[str]:
        expected = replay.outcome
        cut_off_in_opening = expected is None and not len(record.step)  # without rows, nothing records the truncation
        if record.truncated or cut_off_in_opening:
            if expected is not None or replay.moves != self._limit:
                yield f"recorded as truncated after {replay.moves} moves; the limit is {self._limit}"
            expected = np.zeros_like(record.returns)
        elif expected is None:
            yield f"recorded as finished, but the game goes on after {replay.moves} moves"
            return
        if not np.allclose(expected, record.returns, rtol=0, atol=TOLERANCE):
            yield f"outcome {record.returns.tolist()} recorded, {expected.tolist()} by the rules"


def _row_differences(decisions: Sequence[ReplayedDecision], record: GameRecord) -> Iterator[str]:
    """Compare a record's rows with all decisions of a replay."""
    for k, step in enumerate(record.step.tolist()):
        if step >= len(decisions):
            yield f"decision {step} is recorded, the game has {len(decisions)}"
            continue
        for wrong in _row_faults(decisions[step], record, k):
            yield f"decision {step}: {wrong}"


def _row_faults(decision: ReplayedDecision, record: GameRecord, k: int) -> Iterator[str]:
    if record.seat[k] != decision.seat:
        yield f"seat {record.seat[k]} recorded, seat {decision.seat} was to move"
        return
    if decision.action != record.action[k]:
        yield f"action {record.action[k]} recorded, action {decision.action} played"
    if not np.array_equal(decision.obs, record.obs[k]):
        yield "the observation is not what the seat saw"
    if set(np.flatnonzero(record.mask[k]).tolist()) != decision.legal:
        yield "the legal mask is not that of the position"


_HAND = 1 + CARDS + CARDS  # actions of a hand without passing: direction, deal, plays
_SCORES = slice(SCORES, SCORES + SEATS)  # of the four seats, in an observation


class HeartsChecker(ParityChecker):
    """Replay of our own Hearts.

    OpenSpiel plays each hand, and this class adds up the match.

    Args:
        hand: OpenSpiel's rules of a hand.
        match: the rules of the recorded games.
    """

    def __init__(self, hand: Rules, match: HeartsRules) -> None:
        super().__init__(hand)
        self._match = match

    def replay(self, history: Sequence[int]) -> ReplayedGame:
        """See ``ParityChecker.replay``."""
        match, decisions = self._match, list[ReplayedDecision]()
        moves, over, scores = 0, False, np.zeros(SEATS, dtype=np.int64)
        for number, hand in enumerate(_hands(history)):
            if over:
                raise IllegalMove(f"the game is over with scores of {scores.tolist()}, but hand {number} follows")
            if match.pass_cards and match.hands != 1:  # a single hand draws its direction
                expected = DIRECTION_ORDER[number % len(DIRECTION_ORDER)]
                if hand[0] != expected:
                    raise IllegalMove(f"hand {number}: cards were passed in direction {hand[0]}, not {expected}")
            replay = super().replay(hand)
            for decision in replay.decisions:  # a seat sees the sum of match and hand points
                points = np.rint(decision.obs[_SCORES] * SCORE_UNIT)
                decision.obs[_SCORES] = (points + np.roll(scores, -decision.seat)) / SCORE_UNIT
            decisions += replay.decisions
            moves += replay.moves
            if replay.outcome is None:
                return ReplayedGame(decisions, moves, None)
            scores = scores + hand_points(replay.outcome[None], moon_for_shooter=match.moon_for_shooter)[0]
            over = number + 1 == match.hands or (not match.hands and scores.max() >= match.limit)
        return ReplayedGame(decisions, moves, self._outcome(scores) if over else None)

    def _outcome(self, scores: NDArray[np.int64]) -> Floats:
        if self._match.hands:
            lead = scores.mean() - scores  # over the mean of all four; over that of the other three it is 4/3 as much
            return np.asarray(lead * SEATS / (SEATS - 1) / POINTS / self._match.hands, dtype=np.float32)
        winners = scores == scores.min()
        shares = np.where(winners, SEATS / winners.sum(), 0)
        return np.asarray((shares - 1) / (SEATS - 1), dtype=np.float32)


def _hands(history: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split the history of a game into its hands."""
    begin = 0
    while begin < len(history):
        end = begin + _HAND + (SEATS * PASSED if history[begin] != HOLD else 0)
        yield history[begin:end]
        begin = end


class ReplayChecker(Checker):
    """Replay of recorded games on a fresh table of the same rules.

    The table draws chance from the recorded seed. The replay finds games that were altered, or that depend on more
    than seed and actions. It finds no mistakes in the rules. The table's history has to hold the chosen actions, in the
    numbers of the seats to move.

    Args:
        fresh: returns a table of one slot.
    """

    against = "its own rules"

    def __init__(self, fresh: Callable[[], Table]) -> None:
        self._fresh = fresh

    def failures(self, record: GameRecord) -> list[str]:
        """See ``Checker.failures``."""
        table, slot, history = self._fresh(), np.zeros(1, dtype=np.int64), list(record.history)
        table.reset(slot, [record.seed])
        decisions: list[ReplayedDecision] = []
        while (seat := int(table.seats()[0])) != FINISHED:
            move = len(table.history(0))
            if move >= len(history):
                return [f"the recorded game ends after {len(history)} moves, and by the rules it goes on"]
            obs, mask = table.observe(slot)
            action, legal = history[move], np.flatnonzero(mask[0]).tolist()
            if action not in legal:
                return [f"move {move}: action {action} is not legal; legal are {legal}"]
            decisions.append(ReplayedDecision(seat, frozenset(legal), action, obs[0]))
            table.step(slot, np.array([action], dtype=np.int32))
        return [*_ending_differences(table, record), *_row_differences(decisions, record)]


def _ending_differences(table: Table, record: GameRecord) -> Iterator[str]:
    """Compare a record's end with that of its replay in slot 0."""
    if (history := table.history(0)) != list(record.history):
        yield f"history {list(record.history)} recorded, {history} by the rules"
    truncated = bool(table.truncated()[0])
    if len(record.step) and record.truncated != truncated:  # without rows, nothing records the truncation
        yield f"recorded as {_how(record.truncated)}, by the rules it is {_how(truncated)}"
    expected = table.returns()[0]
    if not np.allclose(expected, record.returns, rtol=0, atol=TOLERANCE):
        yield f"outcome {record.returns.tolist()} recorded, {expected.tolist()} by the rules"


def _how(truncated: bool) -> str:  # noqa: FBT001 - the only argument
    return "truncated" if truncated else "finished"
