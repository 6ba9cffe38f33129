"""Compare a GRPO training's last adapter with its first, in paired games.

Both adapters of each folder play the same games: the same starts, seats and draws, against the same bots in turn. A
pair's difference is the last adapter's score less the first one's. The folders are those of ``flyball train`` with a
text game, one for each seed. Free answers are drawn with temperature 1, among all tokens.

    python tests/benchmarks/grpo_study.py --games 800 FOLDER ...
"""

import argparse
import sys
from math import erfc, sqrt
from pathlib import Path
from statistics import fmean, stdev

from flyball.app.config import CPU
from flyball.app.core import RANDOM, Rate, derive_seed
from flyball.app.language.rollout import TextPlayer
from flyball.app.language.selfplay import generator_for, play_match, player_of
from flyball.app.store import FileStore
from flyball.app.train.text import read_run


def study(folder: Path, games: int, free_games: int) -> None:
    """Print the difference between the adapters of a training folder.

    Each adapter plays ``games`` games against the bots.
    """
    run = read_run(folder)
    config, models = run.config, (run.first, run.model)
    generator = generator_for(FileStore(folder / "models"), config, models, CPU)
    heroes = [player_of(config, model, config.evaluation.temperature) for model in models]
    bots = config.builtins
    each = games // len(bots) // config.players * config.players
    differences: list[float] = []
    say(f"{folder}: {config.key}, seed {run.seed}, {run.iteration} iterations, {each} games against each bot")
    for bot in bots:
        seed = derive_seed(run.seed, "study", bot)
        before, after = (
            play_match(config, [hero, TextPlayer(bot=bot)], generator, seed=seed, games=each)[0].scores
            for hero in heroes
        )
        differences += [last - first for first, last in zip(before, after, strict=True)]
        say(f"  against {bot}: {percent(before)} -> {percent(after)}")
    # Games of a rotation share their start, so a rotation is one observation.
    means = [fmean(differences[at : at + config.players]) for at in range(0, len(differences), config.players)]
    error = stdev(means) / sqrt(len(means))
    chance = erfc(abs(fmean(means)) / error / sqrt(2))
    say(f"  difference over {len(differences)} pairs: {fmean(means):+.1%} ± {1.96 * error:.1%}, p = {chance:.1g}")
    even = free_games // config.players * config.players
    for name, hero in zip(("first", "last"), heroes, strict=True):
        free = TextPlayer(hero.adapter, None, 1.0, constrained=False)
        seed = derive_seed(run.seed, "study", "free")
        said = play_match(config, [free, TextPlayer(bot=RANDOM)], generator, seed=seed, games=even)[1]
        legal = Rate.of(float(sum(one.legal for one in said)), len(said))
        say(f"  free answers legal, {name} adapter: {legal.mean:.1%} of {len(said)}")


def say(line: str) -> None:
    """Write a line of the result."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def percent(scores: tuple[float, ...]) -> str:
    """Return a mean score with its interval."""
    rate = Rate.of(sum(scores), len(scores))
    return f"{rate.mean:.1%} ({rate.lower:.1%} to {rate.upper:.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--games", type=int, default=800, help="of each adapter, against all bots together")
    parser.add_argument("--free-games", type=int, default=100)
    asked = parser.parse_args()
    for folder in asked.folders:
        study(folder, asked.games, asked.free_games)


if __name__ == "__main__":
    main()
