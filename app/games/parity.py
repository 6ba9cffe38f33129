"""The parity check: a recorded game is played again, move by move, by the rules library alone.

Nothing of the batched adapter is used but the codec: the replay asks OpenSpiel's lists, one game at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.games.openspiel import CHANCE, Rules
from app.games.table import Observations

TOLERANCE = 1e-5
"""Outcomes are float32 in [-1, 1]."""


@dataclass(frozen=True, slots=True, eq=False)
class GameRecord:
    """One game as it was recorded: K rows of the recorded seats, in order."""

    history: Sequence[int]  # all actions, chance and force included, as the rules number them
    returns: NDArray[np.float32]  # [P] the outcome
    truncated: bool  # whether it was cut off
    step: NDArray[np.int32]  # [K] number of the decision within the game
    seat: NDArray[np.int8]  # [K] who decided
    action: NDArray[np.int32]  # [K] what was decided, as the seat numbers its actions
    obs: Observations  # [K, D] what the seat saw
    mask: NDArray[np.bool_]  # [K, A] what it could do


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One decision as the rules library had it: what was legal and taken in its numbers, and its tensor."""

    seat: int
    legal: list[int]
    taken: int
    tensor: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """A game played again."""

    decisions: Sequence[Decision]  # in order
    moves: int  # their number with the forced ones
    outcome: NDArray[np.float32] | None  # [P] how the game ended, None if it goes on


class IllegalMove(ValueError):
    """A recorded move that the rules library does not allow; its text is what the parity check says of it."""


class ParityChecker:
    """Replays recorded games.

    Args:
        game: an OpenSpiel game string.
        players: number of seats.
        max_moves: the limit that the games were played with.
    """

    def __init__(self, game: str, players: int, max_moves: int | None = None) -> None:
        self._rules = Rules(game, players)
        self._limit = max_moves

    def failures(self, record: GameRecord) -> list[str]:
        """Return what is wrong with a recorded game, in words; nothing when it is right."""
        try:
            replay = self.replay(record.history)
        except IllegalMove as illegal:
            return [str(illegal)]
        return [*self._ending(replay, record), *self._rows(replay.decisions, record)]

    def replay(self, history: Sequence[int]) -> Replay:
        """Play a history by the rules alone. Raises ``IllegalMove``."""
        whole = self._rules.game.get_type().provides_observation_tensor
        state = self._rules.game.new_initial_state()
        decisions: list[Decision] = []
        moves = 0
        for number, action in enumerate(history):
            legal = [] if state.is_terminal() else state.legal_actions()
            if action not in legal:
                raise IllegalMove(f"move {number}: action {action} is not legal; legal are {legal}")
            if state.current_player() != CHANCE:
                moves += 1
                if len(legal) > 1:
                    seat = state.current_player()
                    tensor = state.observation_tensor(seat) if whole else state.information_state_tensor(seat)
                    decisions.append(Decision(seat, legal, action, np.array(tensor, dtype=np.float32)))
            state.apply_action(action)
        return Replay(decisions, moves, self._rules.outcome(state) if state.is_terminal() else None)

    def seen(self, decision: Decision) -> Observations:
        """Return what the seat saw, [D]."""
        seats = np.array([decision.seat], dtype=np.int8)
        observations: Observations = self._rules.codec.encode(decision.tensor[None], seats)[0]
        return observations

    def _ending(self, replay: Replay, record: GameRecord) -> Iterator[str]:
        expected = replay.outcome
        cut_off_in_opening = expected is None and not len(record.step)  # rows say that a game was cut off; it has none
        if record.truncated or cut_off_in_opening:
            if expected is not None or replay.moves != self._limit:
                yield f"recorded as truncated after {replay.moves} moves; the limit is {self._limit}"
            expected = np.zeros_like(record.returns)
        elif expected is None:
            yield f"recorded as finished, but the game goes on after {replay.moves} moves"
            return
        if not np.allclose(expected, record.returns, rtol=0, atol=TOLERANCE):
            yield f"outcome {record.returns.tolist()} recorded, {expected.tolist()} by the rules"

    def _rows(self, decisions: Sequence[Decision], record: GameRecord) -> Iterator[str]:
        for k, step in enumerate(record.step.tolist()):
            if step >= len(decisions):
                yield f"decision {step} is recorded, the game has {len(decisions)}"
                continue
            for wrong in self._row(decisions[step], record, k):
                yield f"decision {step}: {wrong}"

    def _row(self, decision: Decision, record: GameRecord, k: int) -> Iterator[str]:
        codec, seat = self._rules.codec, decision.seat
        if record.seat[k] != seat:
            yield f"seat {record.seat[k]} recorded, seat {seat} was to move"
            return
        if codec.from_game[seat, decision.taken] != record.action[k]:
            yield f"action {record.action[k]} recorded, action {codec.from_game[seat, decision.taken]} played"
        if not np.array_equal(self.seen(decision), record.obs[k]):
            yield "the observation is not what the seat saw"
        if set(np.flatnonzero(record.mask[k]).tolist()) != set(codec.from_game[seat, decision.legal].tolist()):
            yield "the legal mask is not that of the position"
