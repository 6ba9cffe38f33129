"""Self-play and lessons: games recorded as shards of one player's decisions."""

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import numpy as np
from pydantic import Field

from flyball.app.config import GameConfig
from flyball.app.core import derive_seed
from flyball.app.engine import Report
from flyball.app.games import open_table
from flyball.app.job_specs import SelfplayResult, SelfplaySpec, job
from flyball.app.learning.devices import games_at_once
from flyball.app.play.match_statistics import seat_wins
from flyball.app.play.players import PLAYERS, LogitPlayer, Player
from flyball.app.play.recording import Outcomes, ShardRecorder
from flyball.app.play.rng import draw_points, number_streams
from flyball.app.play.rollout import HERO, Rollout, Schedule
from flyball.app.play.search import TREES, SearchPlayer
from flyball.app.store import BlobStore, Shard, ShardMeta, game_seed, open_store, put_shard

IN_FLIGHT = 256  # games at once: more make a forward pass no cheaper per row, fewer raise Python's share of the time
LESSON_GAMES = 1024  # games in a shard of lessons, which takes tens of megabytes where observations are long
_REPORTS = 10  # number of progress reports of a job


def selfplay_schedule(
    games: int,
    players: int,
    lineups: Sequence[tuple[Sequence[int], int]],
    temperatures: Sequence[float],
    seed: int,
    *,
    opening_plies: int = 0,
) -> Schedule:
    """Return games drawn from ``seed``, with random openings.

    Each game begins with 0 to ``opening_plies`` random decisions. A lineup is a pair: the players in the seats after
    the hero's, and a number of games; the hero's seat rotates. In the games that no lineup takes, the hero takes every
    seat.
    """
    seating = np.full((games, players), HERO, dtype=np.int8)
    first = 0
    for opponents, count in lineups:
        heroes = np.arange(count) % players
        for offset, opponent in enumerate(opponents, 1):
            seating[np.arange(first, first + count), (heroes + offset) % players] = opponent
        first += count
    streams = number_streams(derive_seed(seed, "openings"), np.arange(games))
    points = draw_points(streams, np.zeros(games, dtype=np.int64))
    return Schedule(
        seeds=[game_seed(seed, game) for game in range(games)],
        seating=seating,
        temperatures=temperatures,
        seed=derive_seed(seed, "choices"),
        openings=(points * (opening_plies + 1)).astype(np.int64),
    )


class SelfplayCounts(SelfplayResult):
    """Result of self-play, with the games' winners."""

    wins: tuple[int, ...] = Field(description="games each seat won alone")
    draws: int = Field(description="finished games that nobody won alone")


@job
def play(spec: SelfplaySpec, report: Report) -> SelfplayCounts:
    """Play games, and store a shard (a job).

    Deterministic on one kind of device, except ``seconds``. Raises ``MissingBlob``, ``DamagedBlob``, ``WrongModel``,
    ``UnknownGame``, ``NoExperience`` or ``MissingDevice``.
    """
    return play_into(open_store(spec.store), spec, report)


@job
def play_by_search(spec: SelfplaySpec, report: Report) -> SelfplayCounts:
    """Play games of a model that searches (a job). See ``play``. Also raises ``Unsearchable``."""
    return play_into(open_store(spec.store), spec, report, search=True)


def play_into(store: BlobStore, spec: SelfplaySpec, report: Report, *, search: bool = False) -> SelfplayCounts:
    """Play ``spec`` and put the shard into ``store``.

    The store named in the spec is not opened. Raises as ``play``, with ``search`` as ``play_by_search``.
    """
    began = perf_counter()
    game, selfplay = open_table(spec.config, slots=0).spec, spec.config.selfplay
    names = (spec.model, *spec.opponents)
    players = [PLAYERS.load(store, name, game, spec, spec.config) for name in names]
    if search:
        players[0] = searching_player(players[0], spec.config, spec.temperature)
    schedule = selfplay_schedule(
        spec.games,
        spec.config.players,
        [([names.index(name) for name in lineup.opponents], lineup.games) for lineup in spec.lineups],
        (spec.temperature, *[selfplay.temperature] * len(spec.opponents)),
        spec.seed,
        opening_plies=selfplay.opening_plies,
    )
    reported = 0

    def progress(finished: int) -> None:
        nonlocal reported
        if finished * _REPORTS // spec.games > reported:
            reported = finished * _REPORTS // spec.games
            report({"games": finished})

    shard, outcomes = play_recorded(
        spec.config,
        players,
        schedule,
        model=spec.model,
        seed=spec.seed,
        worker=spec.worker,
        in_flight=games_at_once(spec.device, TREES if search else IN_FLIGHT),
        opponents=spec.opponents,
        progress=progress,
    )
    wins, draws = seat_wins(outcomes.returns, outcomes.truncated)
    return SelfplayCounts(
        shard=put_shard(store, shard),
        rows=shard.rows,
        games=spec.games,
        mean_length=float(outcomes.lengths.mean()),
        truncated=int(outcomes.truncated.sum()),
        wins=wins,
        draws=draws,
        seconds=perf_counter() - began,
    )


def searching_player(network: Player, config: GameConfig, temperature: float) -> SearchPlayer:
    """Return a player that searches with a network by the configuration's settings. Raises ``Unsearchable``."""
    assert isinstance(network, LogitPlayer)
    return SearchPlayer(network, config, config.search.simulations, temperature)


def play_recorded(
    config: GameConfig,
    players: Sequence[Player],
    schedule: Schedule,
    *,
    model: str,
    seed: int,
    worker: str,
    in_flight: int,
    opponents: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _finished: None,
) -> tuple[Shard, Outcomes]:
    """Play a schedule; return a shard of the hero's rows, and outcomes.

    The shard's metadata records ``model``, ``seed``, ``worker`` and ``opponents``. At most ``in_flight`` games are
    played at once. See ``Rollout`` for ``players`` and ``progress``. Raises ``NoExperience``.
    """
    recorder = ShardRecorder()
    table = open_table(config, min(len(schedule.seeds), in_flight))
    meta = ShardMeta(
        config_key=config.key,
        rules_version=table.spec.rules_version,
        model=model,
        opponents=tuple(opponents),
        seed=seed,
        worker=worker,
        temperature=schedule.temperatures[HERO],
    )
    outcomes = Rollout(table, players, schedule, recorder, progress).run()
    return recorder.shard(outcomes, meta), outcomes


def play_lessons(
    config: GameConfig, player: Player, name: str, games: int, *, seed: int, temperature: float
) -> Iterator[Shard]:
    """Yield shards of games that one player plays in every seat. Deterministic on a CPU. Raises ``NoExperience``."""
    for first in range(0, games, LESSON_GAMES):
        part = derive_seed(seed, "lessons", first)
        schedule = selfplay_schedule(min(LESSON_GAMES, games - first), config.players, [], (temperature,), part)
        shard, _ = play_recorded(
            config, [player], schedule, model=name, seed=part, worker="lessons", in_flight=LESSON_GAMES
        )
        yield shard
