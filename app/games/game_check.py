"""Check of a game for what self-play, training and parity need.

Games are played at random, several on one table and in an uneven order, then again one by one. Each rule reports its
first fault, with the seed of the game and the number of the decision.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import GameConfig
from flyball.app.core import Finding, FlyballError, located
from flyball.app.games.catalogue import checker_for, open_table
from flyball.app.games.openspiel import OpenSpielTable
from flyball.app.games.parity import GameRecord
from flyball.app.games.spec_check import spec_faults
from flyball.app.games.table import (
    FINISHED,
    TOLERANCE,
    Floats,
    IllegalAction,
    Indices,
    Mask,
    Observations,
    Symmetry,
    Table,
)

GAMES = 16
MORE_GAMES = 128
"""Games to play when fewer had no outcome but 0: in gin rummy, random players rarely end a hand."""

FEWEST = 8
"""Games with the same outcome that are no coincidence."""

LONGEST = 10_000
"""Decisions after which a game without a move limit counts as endless."""

LARGE = 20
"""Largest number of an observation, scaled, that a network learns well from."""

PURE = "Derive all chance from the seed, and keep nothing from one game to the next, nor from one slot to another."


@dataclass(slots=True, eq=False)
class _Played:
    """A game played at random, with one row for each decision."""

    seed: int
    seats: list[int] = field(default_factory=list)
    obs: list[Observations] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    history: list[int] = field(default_factory=list)
    returns: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    truncated: bool = False

    def record(self) -> GameRecord:
        """Return the game as the parity check reads it."""
        count, obs = len(self.actions), np.array(self.obs)
        return GameRecord(
            history=self.history,
            returns=self.returns,
            truncated=self.truncated,
            step=np.arange(count, dtype=np.int32),
            seat=np.array(self.seats, dtype=np.int8),
            action=np.array(self.actions, dtype=np.int32),
            obs=cast("Observations", obs),
            mask=np.array(self.masks),
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True)
class GameReport:
    """Result of a check: faults, and what the sampled games showed.

    Attributes:
        findings: the faults; empty if the game is sound.
        outcomes: lowest and highest outcome of a seat in games that ended; None if no game did.
        scale: the game's own units in an outcome of 1.
        told_apart: how many states of a sample observations tell apart, and how many there are; None if unknown.
        encoding: name of the observations, if the game has several.
    """

    findings: list[Finding]
    outcomes: tuple[float, float] | None = None
    scale: float = 1.0
    told_apart: tuple[int, int] | None = None
    encoding: str = ""


def examine_game(config: GameConfig, games: int = GAMES, seed: int = 0) -> GameReport:
    """Check a configuration's game, and describe what its sampled games showed.

    Args:
        config: the configuration; its network is not checked.
        games: games to play, 2 or more; ``MORE_GAMES`` if all of fewer have the outcome 0.
        seed: seed of the first game; the others follow.
    """
    try:
        table = open_table(config, games)
        faults = list(spec_faults(table.spec))
    except FlyballError as error:
        return GameReport([Finding("open", error.message, error.hint)])
    if faults:
        return GameReport(faults)
    trial = _Trial(config, table, [seed + number for number in range(games)])
    findings, spec = trial.run(), table.spec
    if trial.outcomes() == (0, 0) and games < MORE_GAMES:
        return examine_game(config, MORE_GAMES, seed)
    told_apart = table.told_apart(seed) if isinstance(table, OpenSpielTable) else None
    return GameReport(findings, trial.outcomes(), spec.outcome_scale, told_apart, spec.encoding)


def check_game(config: GameConfig, games: int = GAMES, seed: int = 0) -> list[Finding]:
    """Return the faults of a configuration's game; see ``examine_game``."""
    return examine_game(config, games, seed).findings


class _Fault(Exception):
    """A fault after which a part of the check cannot go on."""


class _Trial:
    """One check: the table, its games, and the findings."""

    def __init__(self, config: GameConfig, table: Table, seeds: list[int]) -> None:
        self._config, self._table, self._spec = config, table, table.spec
        self._games = [_Played(seed) for seed in seeds]
        self._rng = np.random.default_rng(seeds[0])
        self._findings: dict[str, Finding] = {}

    def run(self) -> list[Finding]:
        """Check one rule after the other. Rules about finished games are checked only if all games ended."""
        self._part("reset", self._check_seeds)
        if self._part("play", self._play):
            self._part("outcomes", self._check_outcomes)
            self._part("scale", self._check_scale)
            self._part("determinism", self._play_again)
            self._part("replay", self._check_records)
            self._part("copies", self._check_copies)
            self._part("truncation", self._check_truncation)
            self._part("symmetries", self._check_symmetries)
            self._part("heuristics", self._check_heuristics)
        return list(self._findings.values())

    def outcomes(self) -> tuple[float, float] | None:
        """Return the range of a seat's outcomes in games that ended."""
        ended = [game.returns for game in self._games if game.history and not game.truncated]
        return (float(np.min(ended)), float(np.max(ended))) if ended else None

    def _part(self, rule: str, check: Callable[[], None]) -> bool:
        """Run a part of the check; return whether it ended normally."""
        try:
            check()
        except _Fault:
            return False
        except FlyballError as error:
            self._find(rule, error.message, error.hint)
            return False
        except Exception as error:  # noqa: BLE001 - a user's game may raise anything
            longest = max(self._games, key=lambda game: len(game.actions))
            what = f"{type(error).__name__}: {located(error)}."
            self._find(rule, what, "Fix the game, or raise a FlyballError.", longest)
            return False
        return True

    def _find(self, rule: str, what: str, hint: str, game: _Played | None = None) -> None:
        """Add the first fault against a rule."""
        where = rule if game is None else f"{rule} (seed {game.seed}, decision {len(game.actions)})"
        self._findings.setdefault(rule, Finding(where, what, hint))

    def _check_seeds(self) -> None:
        if len(self._games) < 2:
            return
        try:
            self._table.reset(np.arange(2), [self._games[0].seed])
        except ValueError:
            return
        self._find("reset", "reset() took 1 seed for 2 slots.", "Raise ValueError unless each slot has a seed.")

    def _play(self) -> None:
        """Play all games, and check every position. Each step moves in some of the slots only."""
        table, games = self._table, self._games
        table.reset(np.arange(len(games)), [game.seed for game in games])
        while len(live := np.flatnonzero(self._seats(table, len(games)) != FINISHED)):
            chosen = live[self._rng.random(len(live)) < 0.7] if len(live) > 1 else live
            if not len(chosen):
                continue
            obs, mask = self._position(live)
            tried = int(self._rng.integers(len(live)))
            self._check_illegal(int(live[tried]), mask[tried])
            rows = np.searchsorted(live, chosen)
            actions = (self._rng.random(mask[rows].shape) * mask[rows]).argmax(axis=1).astype(np.int32)
            self._step(chosen, actions, obs[rows], mask[rows])
        for slot, game in enumerate(games):
            self._end(slot, game)

    def _seats(self, table: Table, slots: int) -> NDArray[np.int8]:
        seats = table.seats()
        if np.shape(seats) != (slots,) or seats.dtype != np.int8:
            self._find("shape", f"seats() returned {_kind(seats)}.", f"Return int8 [{slots}]: one for each slot.")
            raise _Fault
        if not ((seats >= FINISHED) & (seats < self._spec.players)).all():
            hint = f"Return seats from 0 to {self._spec.players - 1}, or FINISHED."
            self._find("seats", f"seats() returned {sorted(set(seats.tolist()))}.", hint)
            raise _Fault
        return seats

    def _position(self, live: Indices) -> tuple[Observations, Mask]:
        """Return checked copies of observations and masks in ``live`` slots."""
        obs, mask = self._table.observe(live)
        self._check_rows(live, obs, mask)
        copies = obs.copy(), mask.copy()
        self._check_looking(live, *copies)
        self._check_running(live)
        return copies

    def _check_rows(self, live: Indices, obs: Observations, mask: Mask) -> None:
        spec = self._spec
        for name, array, kind, width in (
            ("observations", obs, spec.observation_type, spec.observation_size),
            ("masks", mask, np.bool_, spec.actions),
        ):
            if np.shape(array) != (len(live), width) or array.dtype != kind:
                hint = f"Return {np.dtype(kind).name} [{len(live)}, {width}], as spec says."
                self._find("shape", f"observe() returned {name} {_kind(array)} for {len(live)} slots.", hint)
                raise _Fault
        for row, slot in enumerate(live.tolist()):
            game = self._games[slot]
            if not np.isfinite(obs[row]).all():
                self._find("shape", "An observation is not finite.", "Look for divisions by 0.", game)
            if mask[row].sum() < 2:
                what = f"The seat to move has {mask[row].sum()} legal actions."
                self._find("forced moves", what, "The table plays single legal actions and chance itself.", game)
                raise _Fault

    def _check_running(self, live: Indices) -> None:
        """Check that games that go on have no outcome."""
        table, spec = self._table, self._spec
        returns, truncated = table.returns(), table.truncated()
        if np.shape(returns) != (len(self._games), spec.players) or np.shape(truncated) != (len(self._games),):
            what = f"returns() returned {_kind(returns)}, truncated() {_kind(truncated)}."
            self._find("shape", what, f"Return [{len(self._games)}, {spec.players}] and [{len(self._games)}].")
            raise _Fault
        for slot in live.tolist():
            if returns[slot].any() or truncated[slot]:
                what = f"A game that goes on has returns {returns[slot].tolist()}, or is truncated."
                self._find("returns", what, "They are 0 and False until the game is over.", self._games[slot])

    def _check_looking(self, live: Indices, obs: Observations, mask: Mask) -> None:
        """Check that observing a position repeats, agrees with ``view`` and changes nothing."""
        table, spec, first = self._table, self._spec, self._games[int(live[0])]
        own = table.view(live, table.seats()[live])
        if np.shape(own) != obs.shape or not np.array_equal(own, obs):
            what = "view() of the seat to move is not what observe() shows."
            self._find("perspective", what, "Encode both in one place.", first)
        for seat in range(spec.players):
            view = table.view(live, np.full(len(live), seat, dtype=np.int8))
            if np.shape(view) != obs.shape or view.dtype != obs.dtype:
                self._find("shape", f"view() returned {_kind(view)}, observe() {_kind(obs)}.", "Encode both alike.")
                raise _Fault
        earned = table.earned(live, table.seats()[live])
        if np.shape(earned) != (len(live),) or not np.isfinite(earned).all():
            self._find("shape", f"earned() returned {_kind(earned)}, or a number that is not finite.", "Return [K].")
        again, legal = table.observe(live)
        if not np.array_equal(again, obs) or not np.array_equal(legal, mask):
            self._find("perspective", "Looking at a position changes it.", "observe and view change nothing.", first)

    def _check_illegal(self, slot: int, mask: Mask) -> None:
        """Try an illegal action, which must be refused and change nothing."""
        if mask.all():
            return
        table, slots, game = self._table, np.array([slot]), self._games[slot]
        action = int(self._rng.choice(np.flatnonzero(~mask)))
        before = table.history(slot), *table.observe(slots)
        try:
            table.step(slots, np.array([action], dtype=np.int32))
        except IllegalAction:
            after = table.history(slot), *table.observe(slots)
            if not all(np.array_equal(first, second) for first, second in zip(before, after, strict=True)):
                what = f"Action {action} was refused, and changed the game."
                self._find("legality", what, "Check all actions before the first is played.", game)
                raise _Fault from None
            return
        what = f"Action {action} is illegal by the mask, and step() played it."
        self._find("legality", what, "Raise flyball.IllegalAction for what the mask excludes.", game)
        raise _Fault

    def _step(self, slots: Indices, actions: NDArray[np.int32], obs: Observations, mask: Mask) -> None:
        """Play ``actions`` and record the rows. The games of other slots have to stay as they are."""
        table, games, seats = self._table, self._games, self._table.seats()
        before = [list(table.history(slot)) for slot in range(len(games))]
        returned, legal = table.observe(slots)
        try:
            table.step(slots, actions)
        except IllegalAction as error:
            what = f"An action that the mask allows was refused: {error.message}"
            self._find("legality", what, "The mask has to agree with step().", games[int(slots[0])])
            raise _Fault from error
        if not np.array_equal(returned, obs) or not np.array_equal(legal, mask):
            hint = "Return copies, because recorded rows keep what was returned."
            self._find("perspective", "What observe() returned changes with the next step.", hint)
        for slot, game in enumerate(games):
            history, moved = table.history(slot), slot in slots
            if history[: len(before[slot])] != before[slot] or (len(history) > len(before[slot])) != moved:
                what = "A step did not add to its history." if moved else "A step in other slots changed its history."
                self._find("history", what, "history(slot) grows with each move in that slot, at its end.", game)
        for row, slot in enumerate(slots.tolist()):
            game = games[slot]
            game.seats.append(int(seats[slot]))
            game.obs.append(obs[row])
            game.masks.append(mask[row])
            game.actions.append(int(actions[row]))
            if len(game.actions) >= LONGEST:
                self._find(
                    "end", f"The game is not over after {LONGEST} decisions.", "Set max_moves, or let it end.", game
                )
                raise _Fault

    def _end(self, slot: int, game: _Played) -> None:
        """Record and check how a game ended."""
        table, spec = self._table, self._spec
        game.history = [int(action) for action in table.history(slot)]
        game.returns, game.truncated = table.returns()[slot].copy(), bool(table.truncated()[slot])
        returns, total = game.returns.tolist(), float(game.returns.sum())
        if not np.abs(game.returns).max() <= 1 + TOLERANCE:
            self._find("returns", f"Outcomes are {returns}.", "Divide by the largest possible: [-1, 1].", game)
        if not abs(total) <= TOLERANCE:
            self._find("returns", f"Outcomes are {returns}, with the sum {total:g}.", "Subtract their mean.", game)
        if game.truncated and game.returns.any():
            self._find("returns", f"A truncated game has outcomes {returns}.", "They are 0: nobody has won.", game)
        seats = np.arange(spec.players, dtype=np.int8)
        view = table.view(np.full(spec.players, slot), seats)  # rollouts look at the end of truncated games
        if np.shape(view) != (spec.players, spec.observation_size):
            self._find("shape", f"view() of a finished game returned {_kind(view)}.", "Encode it as any other.", game)

    def _check_outcomes(self) -> None:
        """Check that seats decide something, and that games end differently."""
        count = len(self._games)
        if not any(game.actions for game in self._games):
            hint = "A seat needs a choice of two legal actions, else there is nothing to learn."
            self._find("outcomes", f"All {count} games ended without a decision.", hint)
            return
        ended = {tuple(game.returns.tolist()) for game in self._games if not game.truncated}
        played = f"at random, {count} games"
        if ended and not any(map(any, ended)):
            hint = (
                "Nothing is learned from games that nobody wins. Play more: --games. If all seats always get the same, "
                "the game is cooperative, and cannot be played here."
            )
            self._find("outcomes", f"Played {played} had no outcome but 0.", hint)
        elif len(ended) == 1 and count >= FEWEST:
            hint = "Nothing is learned if no move changes the outcome. Play more: --games."
            self._find("outcomes", f"Played {played} all had the outcome {[*next(iter(ended))]}.", hint)

    def _check_scale(self) -> None:
        """Check that no feature drowns the others inside a network."""
        rows = [row for game in self._games for row in game.obs]
        if not rows:
            return
        largest = np.abs(np.array(rows, dtype=np.float64)).max(axis=0)
        inside = largest / np.asarray(self._spec.scale)
        if inside.max() > LARGE:
            feature = int(inside.argmax())
            what = f"Observed number {feature} reaches {largest[feature]:g}, and networks learn from numbers about 1."
            hint = (
                f"Set scale = {largest[feature]:g}, or a list with a divisor for each of the {len(largest)} numbers, "
                f"in the class or in [games.{self._config.key}]."
            )
            self._find("scale", what, hint)

    def _play_again(self) -> None:
        """Play each game alone, all in one slot. Rows and outcomes have to be the same."""
        table, slot = open_table(self._config, 1), np.zeros(1, dtype=np.int64)
        for game in self._games:
            table.reset(slot, [game.seed])
            again = _Played(game.seed)
            for seat, obs, mask, action in zip(game.seats, game.obs, game.masks, game.actions, strict=True):
                if table.seats()[0] != seat or not _same((obs, mask), table.observe(slot)):
                    self._find("determinism", "Played again, seat, observation or mask differ.", PURE, again)
                    return
                table.step(slot, np.array([action], dtype=np.int32))
                again.actions.append(action)
            end = table.returns()[0], table.truncated()[0], table.history(0), table.seats()[0]
            if not _same(end, (game.returns, game.truncated, game.history, FINISHED)):
                what = "Played again, outcome, history or length differ."
                self._find("determinism", what, PURE, again)

    def _check_records(self) -> None:
        """Give each game to the parity checker, as the quality monitor does."""
        checker = checker_for(self._config)
        for game in self._games:
            if game.actions and (failures := checker.failures(game.record())):
                hint = "history() holds the actions of the seats to move, or the game brings a checker of its own."
                self._find("replay", f"By {checker.against}: {failures[0]}", hint, game)

    def _check_copies(self) -> None:
        """Copy a searchable game halfway, and play the copy first, then both to the recorded end."""
        for game in self._games if self._spec.searchable else ():
            try:
                alike = self._copies_end_alike(game)
            except IllegalAction:
                alike = False
            if not alike:
                hint = "copy_from copies all of a game; after it, neither game changes the other."
                self._find("copies", "A copied game and its original, played on alike, end otherwise.", hint, game)

    def _copies_end_alike(self, game: _Played) -> bool:
        first, second, half = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64), len(game.actions) // 2
        table = open_table(self._config, 2)
        table.reset(first, [game.seed])
        for slot, actions in (
            (first, game.actions[:half]),
            (second, game.actions[half:]),
            (first, game.actions[half:]),
        ):
            if slot is second:
                table.copy_from(table, first, second)
            for action in actions:
                table.step(slot, np.array([action], dtype=np.int32))
        ended = game.returns, game.truncated, game.history, FINISHED
        ends = zip(table.returns(), table.truncated(), map(table.history, range(2)), table.seats(), strict=True)
        return all(_same(end, ended) for end in ends)

    def _check_truncation(self) -> None:
        """Play the longest game again with a limit of half its decisions."""
        longest = max(self._games, key=lambda game: len(game.actions))
        limit = len(longest.actions) // 2
        if not limit:
            return
        try:
            table = open_table(self._config.replace(max_moves=limit), 1)
        except FlyballError:
            return  # the game has no move limit, and says so
        slot, again = np.zeros(1, dtype=np.int64), _Played(longest.seed)
        table.reset(slot, [longest.seed])
        for action in longest.actions[:limit]:
            if table.seats()[0] == FINISHED:
                break
            table.step(slot, np.array([action], dtype=np.int32))
            again.actions.append(action)
        if table.seats()[0] != FINISHED or not table.truncated()[0] or table.returns().any():
            what = f"With max_moves = {limit}, the game is not cut off without a winner after {limit} moves."
            self._find("truncation", what, "Count the moves of all seats, or raise a FlyballError for a limit.", again)

    def _check_symmetries(self) -> None:
        """Play each game side by side with its image."""
        for symmetry in self._spec.symmetries:
            for game in self._games:
                self._check_image(symmetry, game)

    def _check_image(self, symmetry: Symmetry, game: _Played) -> None:
        table, slot, image = open_table(self._config, 1), np.zeros(1, dtype=np.int64), _Played(game.seed)
        table.reset(slot, [game.seed])
        hint = f"The symmetry {symmetry.name} is not one of this game, or its indices are wrong."
        for obs, mask, action in zip(game.obs, game.masks, game.actions, strict=True):
            observed, legal = table.observe(slot)
            if not _same((obs[symmetry.observation], mask[symmetry.action]), (observed[0], legal[0])):
                self._find("symmetries", f"The image under {symmetry.name} is seen otherwise.", hint, image)
                return
            table.step(slot, np.array([symmetry.image[action]], dtype=np.int32))
            image.actions.append(action)
        if not np.array_equal(table.returns()[0], game.returns):
            self._find("symmetries", f"The image under {symmetry.name} ends otherwise.", hint, image)

    def _check_heuristics(self) -> None:
        """Check each heuristic player's weights in all positions of a game."""
        game = next((game for game in self._games if game.actions), None)
        if game is None:
            return
        rows = game.record()
        mask = rows.mask
        for name, heuristic in self._spec.levels.items():
            weights = np.asarray(heuristic(rows.obs, mask))
            legal = np.where(mask, weights, -np.inf) if weights.shape == mask.shape else weights
            if weights.shape != mask.shape or np.isnan(legal).any() or not np.isfinite(legal.max(axis=1)).all():
                what = f"The player {name} returned {_kind(weights)}, or no finite weight of a legal action."
                self._find("heuristics", what, f"Return log-weights [K, {self._spec.actions}].", game)


def _same(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    return all(np.array_equal(np.squeeze(own), np.squeeze(other)) for own, other in zip(ours, theirs, strict=True))


def _kind(array: Any) -> str:
    return f"{getattr(array, 'dtype', type(array).__name__)} {list(np.shape(array))}"
