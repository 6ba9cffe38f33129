"""Gauntlets: plan a model's opponents, split games into batches, merge results.

The games against one opponent are split too, because a single champion would otherwise keep one process busy and leave
the others idle. A lost batch costs only its own games.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pydantic import Field

from flyball.app.config import EvaluationSettings, FrozenModel, GameConfig
from flyball.app.config.devices import GPU_GAMES
from flyball.app.core import NEWEST_ANCHOR, RANDOM, FlyballError, ModelHash, is_model
from flyball.app.job_specs import MODEL, BatchResult, BatchSpec, GameBatch, MatchContext, MatchGames, Opponent
from flyball.app.play.match_statistics import MatchStatistics, match_statistics

CHAMPION = "champion"
MEMBER = "member_"  # role prefix of randomly drawn league members; such a role lasts for one gauntlet only
ATTEMPTS = 2  # attempts at a batch that raises


def plan_gauntlet(
    model: ModelHash,
    candidates: Iterable[tuple[str, ModelHash | None]],
    builtins: Sequence[str],
    settings: EvaluationSettings,
    players: int,
    *,
    saturated: Collection[str] = (),
) -> tuple[Opponent, ...]:
    """Return the opponents of ``model``: first the bots, then the ``candidates``.

    The random bot is the first of all. A candidate is a pair of role and model.

    A model never plays itself, because a champion would lose rating by beating itself. A candidate with several roles
    plays once, in its first role. Games are rounded up to whole rotations, so that every seat is taken equally often.
    ``saturated`` players have one-sided scores against models like this one; a few games suffice to notice a change.
    The champion and the newest lasting anchor always get all games, because the gate and the watchdog depend on them.
    """

    def games(role: str, player: str) -> int:
        if role in (CHAMPION, NEWEST_ANCHOR):
            count = settings.model_games
        elif player in saturated:
            count = settings.saturated_games
        else:
            count = settings.random_games if role == RANDOM else settings.anchor_games
        return _whole_rotations(count, players)

    ordered = sorted(set(builtins), key=lambda name: (name != RANDOM, name))
    opponents = [Opponent(name=name, kind=name, games=games(name, name)) for name in ordered]
    models = {model}
    for name, candidate in candidates:
        if candidate is not None and candidate not in models:
            models.add(candidate)
            opponents.append(Opponent(name=name, kind=MODEL, model=candidate, games=games(name, candidate)))
    return tuple(opponents)


def plan_matches(players: Iterable[str], games: int, config: GameConfig) -> tuple[Opponent, ...]:
    """Return ``players``, models by hash or bots by name, as opponents for ``games`` rounded up to whole rotations."""
    rotated = _whole_rotations(games, config.players)
    return tuple(
        Opponent(name=f"{MEMBER}{number}", kind=MODEL, model=ModelHash(name), games=rotated)
        if is_model(name)
        else Opponent(name=name, kind=name, games=rotated)
        for number, name in enumerate(players, 1)
    )


def _whole_rotations(games: int, players: int) -> int:
    return -(-games // players) * players


class NothingPlayed(FlyballError):
    """All batches of a gauntlet were lost."""


class OpponentResult(MatchStatistics):
    """Statistics of the match against one opponent."""

    opponent: str
    opponent_model: ModelHash | None


class GauntletResult(FrozenModel):
    """Results by opponent, in the order requested. Opponents without a played batch are missing."""

    results: tuple[OpponentResult, ...] = Field(min_length=1)
    lost_games: int = Field(default=0, ge=0, description="that were planned and could not be played")
    error: str | None = Field(default=None, description="the reason for the last of them")
    seconds: float = Field(ge=0, description="of computing, all processes together")


class GauntletSpec(MatchContext):
    """A gauntlet: a model and all its opponents."""

    opponents: tuple[Opponent, ...] = Field(min_length=1)

    @property
    def batches(self) -> tuple[GameBatch, ...]:
        """The gauntlet's batches, each of whole rotations against one opponent.

        A batch has at least one rotation, and otherwise at most ``batch_games`` games; on a GPU the limit is at least
        ``GPU_GAMES``.
        """
        players, most = self.config.players, self.config.evaluation.batch_games
        if self.device.startswith("cuda"):
            most = max(most, GPU_GAMES)
        size = max(1, most // players) * players
        return tuple(
            GameBatch(opponent=opponent, first=first, games=min(size, opponent.games - first))
            for opponent in self.opponents
            for first in range(0, opponent.games, size)
        )

    @property
    def parts(self) -> tuple[dict[str, Any], ...]:
        """A ``BatchSpec`` for each batch, as a JSON object."""
        whole = self.model_dump(exclude={"opponents"})
        specs = (BatchSpec(**whole, batch=batch) for batch in self.batches)
        return tuple(spec.model_dump(mode="json") for spec in specs)

    def gather(self, parts: Sequence[BatchResult | FlyballError]) -> GauntletResult:
        """Merge ``parts``: each batch's result, or the error that lost it. Raises ``NothingPlayed``."""
        played, seats = dict[Opponent, MatchGames](), self.config.players
        lost, last, seconds = 0, None, 0.0
        for batch, part in zip(self.batches, parts, strict=True):
            if isinstance(part, FlyballError):
                lost, last = lost + batch.games, part
            else:
                played[batch.opponent] = played.get(batch.opponent, MatchGames()).plus(part.games)
                seconds += part.seconds
        if last is not None and not played:
            raise NothingPlayed(f"None of {lost} games could be played: {last.message}", hint=last.hint)
        results = (
            OpponentResult(
                opponent=opponent.name, opponent_model=opponent.model, **dict(match_statistics(games, seats))
            )
            for opponent, games in played.items()
        )
        error = None if last is None else str(last)
        return GauntletResult(results=tuple(results), lost_games=lost, error=error, seconds=seconds)
