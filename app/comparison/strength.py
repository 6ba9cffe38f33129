"""Strength of final champions, from a round robin.

All champions and the built-in bots play it, and are rated together. Champions of different runs never played each other
before. No gate or rating was decided by games of the round robin.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.app.backends import backend_of, describe
from flyball.app.comparison.run import RunFigures
from flyball.app.config import GameConfig, RunFolder
from flyball.app.core import HEURISTIC, derive_seed
from flyball.app.engine import LocalEngine
from flyball.app.league.pool import rate
from flyball.app.league.totals import PairTotals, pair_totals
from flyball.app.play.gauntlet import GauntletSpec, plan_matches


@dataclass(frozen=True, slots=True)
class StudyResources:
    """Folders and processes of a study's runs and matches.

    Attributes:
        folder: of the study.
        settings_folder: where user-defined commands run.
        workers: processes.
        say: receives lines of progress.
    """

    folder: Path
    settings_folder: str
    workers: int
    say: Callable[[str], None]

    @property
    def store(self) -> Path:
        """The folder with all champions."""
        return RunFolder(self.folder).store


def players_of(config: GameConfig, runs: Iterable[RunFigures]) -> list[str]:
    """Return the players of a configuration's round robin. Built-in bots come first, then all champions."""
    bots = dict.fromkeys(config.builtins)
    if HEURISTIC in describe(config).bots:
        bots[HEURISTIC] = None
    champions = {model for run in runs if (model := run.configs[config.key].champion)}
    return [*bots, *sorted(champions)]


class MatchRecord:
    """The results of a configuration's round robin, in a file. Each pair is a line of JSON."""

    def __init__(self, folder: Path, config: GameConfig) -> None:
        self.path = folder / "matches" / f"{config.key}.jsonl"
        self.pairs: list[PairTotals] = []
        if self.path.exists():
            whole = self.path.read_bytes().rpartition(b"\n")[0]  # the last line of an interrupted study may be cut off
            self.pairs = [PairTotals.from_json(line) for line in whole.splitlines()]
            self.path.write_bytes(whole + b"\n" if whole else b"")

    def add(self, pairs: Sequence[PairTotals]) -> None:
        """Append results."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(b"".join(pair.to_json() + b"\n" for pair in pairs))
        self.pairs += pairs

    def missing(self, players: Sequence[str], games: int) -> dict[str, list[str]]:
        """Return each player's opponents with fewer than ``games`` games together. Each pair appears once."""
        played = {frozenset((pair.first, pair.second)) for pair in self.pairs if pair.games >= games}
        opponents = {
            hero: [other for other in players[number:] if frozenset((hero, other)) not in played]
            for number, hero in enumerate(players, 1)
        }
        return {hero: others for hero, others in opponents.items() if others}

    def strengths(self, players: Sequence[str]) -> dict[str, float]:
        """Return the players' ratings, Elo over the random bot, from one fit of their games."""
        among = set(players)
        ratings = rate([pair for pair in self.pairs if {pair.first, pair.second} <= among], players)
        return dict(zip(ratings.agents, ratings.elo.tolist(), strict=True))


async def play_round_robin(
    config: GameConfig, players: Sequence[str], games: int, record: MatchRecord, resources: StudyResources
) -> None:
    """Play the missing pairs of a configuration's round robin.

    Args:
        config: how the games are played (``evaluation``).
        players: models of the study's store, and bots.
        games: of each pair; rounded up to whole rotations.
        record: the pairs that were played before.
        resources: folders and processes.
    """
    from flyball.app.play.matches import (
        EvaluationManager,  # imported late, because commands must not import torch to start
    )

    engine, turns = LocalEngine(resources.workers), asyncio.Semaphore(resources.workers)
    manager = EvaluationManager(engine, backend_of(config).match)
    pairs = len(players) * (len(players) - 1) // 2

    async def play(hero: str, others: Sequence[str]) -> None:
        async with turns:  # so that each player's results are kept as early as possible
            opponents = plan_matches(others, games, config)
            spec = GauntletSpec(
                store=str(resources.store),
                config=config,
                model=hero,
                opponents=opponents,
                seed=derive_seed(0, "round robin", hero),
                settings_folder=resources.settings_folder,
            )
            played = await manager.evaluate(spec)
        if played.error:
            resources.say(f"{config.key}: {played.lost_games} games of {hero[:12]} could not be played: {played.error}")
        names = {opponent.name: opponent.player for opponent in opponents}
        pairs_played = (pair_totals(hero, names[match.opponent], match) for match in played.results)
        record.add([pair for pair in pairs_played if pair])
        resources.say(
            f"{config.key}: {pairs - sum(map(len, record.missing(players, games).values()))} of {pairs} pairs played"
        )

    try:
        async with asyncio.TaskGroup() as group:
            for hero, others in record.missing(players, games).items():
                group.create_task(play(hero, others))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        await engine.close()
