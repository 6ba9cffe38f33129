"""Training processes that share one registry, and import this module.

Each process trains its own lineage against the league.
"""

from functools import partial
from pathlib import Path

import torch
from leagues import checkpoint

from flyball.app.config import GAMES, AdmissionSettings, NetworkSettings
from flyball.app.core import ModelHash, derive_seed
from flyball.app.job_specs import BatchResult, read_results
from flyball.app.league.admission import admission, retirements
from flyball.app.league.league import League
from flyball.app.league.matchmaking import select
from flyball.app.league.totals import PairTotals, pair_totals
from flyball.app.learning.jobs import initialise, train
from flyball.app.play.gauntlet import GauntletSpec, plan_matches
from flyball.app.play.matches import batch
from flyball.app.play.selfplay import play
from flyball.app.store import FileStore, LeagueFile

CONNECT_FOUR = GAMES["connect_four_2p"]
SMALL = {"network": NetworkSettings(hidden=(64, 64)), "ppo": CONNECT_FOUR.ppo.replace(batch_size=128)}
CONFIG = CONNECT_FOUR.replace(**SMALL)
GAMES_A_STEP, RATED_GAMES = 384, 4
SCHEDULE = AdmissionSettings()


def registry(folder: Path) -> LeagueFile:
    """Return the registry that all share."""
    return LeagueFile(folder / "league.json", "shared", CONFIG.key)


def rated(folder: Path, model: str, opponents: tuple[str, ...], games: int, seed: int) -> tuple[PairTotals, ...]:
    """Let a model play, and return its games."""
    planned = plan_matches(opponents, games, CONFIG)
    spec = GauntletSpec(store=folder / "store", config=CONFIG, model=ModelHash(model), opponents=planned, seed=seed)
    results = spec.gather(read_results(BatchResult, [batch(part, _quiet) for part in spec.parts])).results
    pairs = (pair_totals(model, match.opponent_model or match.opponent, match) for match in results)
    return tuple(pair for pair in pairs if pair)


def entered(step: int, model: str, games: tuple[PairTotals, ...], league: League) -> League:
    """Count a step, and add its model to the league when due."""
    bot = league.agents["random"]
    league = league.with_agent(bot.rated(0.0, 0.0, bot.matches + 1))
    if not (roles := admission(step, None, league, SCHEDULE)):
        return league
    newest = checkpoint(step, roles=roles).replace(id=model)
    league = league.with_agent(newest)
    for played in games:
        league = league.with_games(played)
    for retirement in retirements(league, SCHEDULE):
        league = league.without(retirement.agent.id)
    return league


def train_line(folder: Path, first: int, stride: int, steps: int) -> None:
    """Take every ``stride``-th step of a lineage.

    A step plays against the league, trains, rates the model, and enters it if it is due.
    """
    torch.set_num_threads(1)
    base = {"store": str(folder / "store"), "config": CONFIG.model_dump(mode="json")}
    model = initialise({**base, "seed": first}, _quiet)["model"]
    for number, step in enumerate(range(first, steps, stride)):
        seed = derive_seed(first, "step", number)
        hero = checkpoint(step).replace(id=model)
        opponents = tuple(agent.id for agent in select(registry(folder).read(), "pfsp", hero, 2, seed=seed))
        lineups = [{"opponents": [name], "games": GAMES_A_STEP // 4} for name in opponents]
        played = {"model": model, "lineups": lineups, "games": GAMES_A_STEP, "seed": seed, "temperature": 1.0}
        shard = play({**base, **played, "worker": f"line {first}"}, _quiet)["shard"]
        lesson = {"base_model": model, "shards": [shard], "seed": seed, "step": number}
        knobs = {"learning_rate": CONFIG.learning_rate, "epochs": CONFIG.epochs}
        model = train({**base, **lesson, **knobs}, _quiet)["model"]
        FileStore(folder / "store").delete(shard)
        games = rated(folder, model, ("random", *(name for name in opponents if name != "random")), RATED_GAMES, seed)
        registry(folder).update(partial(entered, step, model, games))


def _quiet(report: object) -> None:
    """Discard a report."""
