"""Games between a person and a run's players, in memory until they are kept."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from time import monotonic

from flyball.app.api.kept_games import KeptGame, keep_game
from flyball.app.api.playing import PERSON, Answer, Opinion, PlaySpec, Seated
from flyball.app.api.runs import RunLocation
from flyball.app.api.watching import Decision
from flyball.app.core import FlyballError, derive_id
from flyball.app.dashboard.jobs import PageJob, PageJobs
from flyball.app.games import open_table
from flyball.app.games.session import GameSession, Standing
from flyball.app.games.table import FINISHED
from flyball.daemons.clock import SystemClock, boot_id

SEAT, ANSWER, THINK = (f"flyball.app.api.play_job:{job}" for job in ("seat_players", "answer", "think"))

ANSWER_SECONDS, OPINION_SECONDS = 300.0, 120.0
"""Longest times for the moves of the others, and for an opinion."""

MOST_GAMES = 50
"""Most games in memory. A new one takes the place of the one that was left alone for longest."""

LEFT_SECONDS = 6 * 3600.0
"""Time without a look after which a game is dropped."""

_numbers = count()


class GameGone(FlyballError):
    """The game is not in memory."""


class NotNow(FlyballError):
    """A move that does not fit the game's position. The game goes on as it is."""


class PlayedGame:
    """A game of a person.

    Attributes:
        id: names the game in addresses.
        session: the game so far.
        standing: the session's position.
        asked: the player of each seat, by the names that were asked for.
        spec: arguments of the jobs, with the full names of the players once these are known.
        decisions: of the others.
        job: what is being computed for the game; None while it waits for the person, and at the end.
        problem: why the last computation failed; empty if it did not.
        opinion: the job with an opinion about the present position.
        seen: entries of the history up to the person's last move, with it.
        kept: the name under which the game was kept; empty before.
        lock: held while the game changes.
    """

    def __init__(self, place: RunLocation, spec: PlaySpec, asked: tuple[str, ...]) -> None:
        self.id = derive_id("played", boot_id(), SystemClock().now().isoformat(), next(_numbers))[:16]
        self.place, self.spec, self.asked = place, spec, asked
        self.session = GameSession(place.config(spec.config), spec.seed)
        self.standing: Standing = self.session.standing()
        self.decisions: list[Decision] = []
        self.is_seated, self.problem, self.kept, self.seen = False, "", "", 0
        self.job: PageJob | None = None
        self.opinion: PageJob | None = None
        self.looked_at, self.lock = monotonic(), asyncio.Lock()

    @property
    def players(self) -> tuple[str, ...]:
        """The player of each seat, by the full names once these are known."""
        return self.spec.players

    @property
    def over(self) -> bool:
        """True once the game has ended."""
        return self.standing.seat == FINISHED

    @property
    def is_persons_turn(self) -> bool:
        """True while a person is to move."""
        return self.is_seated and not self.over and self.players[self.standing.seat] == PERSON

    def play(self, action: int, after: int) -> None:
        """Play a person's action, chosen when ``after`` actions had been played. Raises ``NotNow``."""
        if self.over:
            raise NotNow("The game is over, so no move was played.", hint="Keep it, or start another one.")
        if after != len(self.session.actions) or not self.is_persons_turn:
            raise NotNow("The game has gone on since that page was shown. No move was played.", hint="Move again.")
        if action not in self.standing.legal:
            raise NotNow("That move is not legal here. No move was played.", hint="Choose one that is offered.")
        before = len(self.standing.history)
        self._go_on(action)
        self.seen = before + 1

    def take(self, result: object) -> None:
        """Take the result of the game's job."""
        if self.is_seated:
            for decision in Answer.model_validate(result).decisions:
                self._go_on(decision.action)
                self.decisions.append(decision)
        else:
            self.spec = self.spec.replace(players=Seated.model_validate(result).players)
            self.is_seated = True

    def keep(self) -> str:
        """Write the finished game into the run folder, once, and return its name. Raises ``NotNow``."""
        if not self.over:
            raise NotNow("The game is not over yet, and only finished games are kept.", hint="Play on.")
        if not self.kept:
            standing = self.standing
            game = KeptGame(
                kept=SystemClock().now(),
                config=self.session.config.key,
                rules_version=open_table(self.session.config, 0).spec.rules_version,
                players=self.players,
                seed=self.session.seed,
                actions=self.session.actions,
                decisions=tuple(self.decisions),
                history=standing.history,
                returns=standing.returns,
                truncated=standing.truncated,
            )
            self.kept = keep_game(self.place.folder, game, self.id)
        return self.kept

    def shown_opinion(self) -> Opinion | None:
        """Return the opinion about the present position, if it was asked for and is known."""
        result = None if self.opinion is None else self.opinion.result
        return None if result is None else Opinion.model_validate(result)

    def _go_on(self, action: int) -> None:
        self.session = self.session.after(action)
        self.standing, self.opinion = self.session.standing(), None
        self.spec = self.spec.replace(actions=self.session.actions)


class PlayedGames:
    """The games in memory, and the jobs that play in them. Methods are called on the event loop.

    The jobs have a process of their own, so that no person waits for a watched game or a comparison.
    """

    def __init__(self, jobs: PageJobs | None = None) -> None:
        self._jobs = jobs or PageJobs()
        self._games: OrderedDict[str, PlayedGame] = OrderedDict()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run jobs inside the context."""
        async with self._jobs.running():
            yield

    def add(self, game: PlayedGame) -> None:
        """Begin a game."""
        now = monotonic()
        left = [key for key, kept in self._games.items() if now - kept.looked_at > LEFT_SECONDS]
        over = max(len(left), len(self._games) + 1 - MOST_GAMES)
        for other in (*left, *list(self._games)[len(left) : over]):
            self._drop(other)
        self._games[game.id] = game
        self._compute(game)

    def find(self, game_id: str) -> PlayedGame:
        """Return a game, and note that somebody looks at it. Raises ``GameGone``."""
        game = self._games.get(game_id)
        if game is None:
            raise GameGone(
                "This game is no longer in memory: the dashboard was started again, or nobody looked at the game for "
                f"{LEFT_SECONDS / 3600:.0f} hours.",
                hint="Start another one. A game that was kept is on the page Games.",
            )
        self._games.move_to_end(game_id)
        game.looked_at = monotonic()
        for job in (game.job, game.opinion):
            if job is not None:
                self._jobs.find(job.key)
        return game

    async def settle(self, game: PlayedGame, seconds: float = 0.0) -> None:
        """Take what was computed for a game, and let the others play on. Waits for at most some seconds."""
        until = monotonic() + seconds
        async with game.lock:
            while game.job is not None and await _ended(game.job, until - monotonic()):
                job, game.job = game.job, None
                if job.result is None:
                    game.problem = job.error or ""
                else:
                    try:
                        await asyncio.to_thread(game.take, job.result)
                    except FlyballError as error:  # the settings have another game of this name by now
                        game.problem = error.message
                    else:
                        self._compute(game)

    async def play(self, game: PlayedGame, action: int, after: int) -> None:
        """Play a person's action, and let the others answer. Raises ``NotNow``."""
        async with game.lock:
            await asyncio.to_thread(game.play, action, after)
            self._compute(game)

    async def again(self, game: PlayedGame) -> None:
        """Compute again what failed."""
        async with game.lock:
            self._compute(game)

    async def keep(self, game: PlayedGame) -> str:
        """Keep a game; see ``PlayedGame.keep``."""
        async with game.lock:
            return await asyncio.to_thread(game.keep)

    async def think(self, game: PlayedGame, seconds: float) -> None:
        """Ask for an opinion about the present position. Waits for it for at most some seconds. Raises ``NotNow``."""
        if not game.is_persons_turn:
            raise NotNow("It is not your turn, so there is nothing to advise.", hint="Wait for your turn.")
        game.opinion = self._jobs.begin(THINK, game.spec.model_dump(mode="json"), OPINION_SECONDS)
        await _ended(game.opinion, seconds)

    def _compute(self, game: PlayedGame) -> None:
        """Begin the job that the game waits for, if it waits for one."""
        game.problem = ""
        if game.job is None and (not game.is_seated or not (game.over or game.is_persons_turn)):
            function = ANSWER if game.is_seated else SEAT
            try:
                game.job = self._jobs.begin(function, game.spec.model_dump(mode="json"), ANSWER_SECONDS)
            except FlyballError as error:
                game.problem = str(error)

    def _drop(self, game_id: str) -> None:
        game = self._games.pop(game_id)
        if game.job is not None:
            self._jobs.stop(game.job.key)


async def _ended(job: PageJob, seconds: float) -> bool:
    """Return whether a job has ended, after waiting for at most some seconds."""
    if not job.over and job.task is not None and seconds > 0:
        await asyncio.wait({job.task}, timeout=seconds)
    return job.over
