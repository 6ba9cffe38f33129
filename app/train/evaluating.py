"""How good a policy is against a bot, in the course of a run."""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from app.config import TrainingSettings
from app.core import derive_seed
from app.play.hands import win_shares
from app.play.matches import MatchPlan, play_rotations
from app.play.players import Player
from app.train.game import RunGame
from app.train.iteration import Evaluation

_Z_95_ONE_SIDED = 1.645


def evaluate(game: RunGame, policy: Player, opponent: str, *, games: int, temperature: float, seed: int) -> Evaluation:
    """Play a policy against a bot in all other seats.

    Args:
        game: what is played.
        policy: the hero.
        opponent: name of the bot.
        games: rounded up to whole rotations, in each of which the hero takes every seat of one deal.
        temperature: of the policy; 0 is greedy.
        seed: of the deals; the same one gives all policies the same.
    """
    seats = game.config.players
    rotations = max(2, -(-games // seats))
    plan = MatchPlan(rotations * seats, seed, temperature, game.config.evaluation.opening_plies)
    outcomes, heroes = play_rotations(game.config, policy, game.bot(opponent), plan)
    returns, numbers = outcomes.returns, np.arange(plan.games)
    means = returns[numbers, heroes].reshape(rotations, seats).mean(axis=1, dtype=np.float64)
    points, moons = game.points(returns), game.moons(returns)
    return Evaluation(
        opponent=opponent,
        games=plan.games,
        outcome=float(means.mean()),
        stderr=float(means.std(ddof=1)) / sqrt(rotations),
        win_share=float(win_shares(-returns)[numbers, heroes].mean()),
        points=None if points is None else float(points[numbers, heroes].mean()),
        moon_rate=None if moons is None else float(moons[numbers, heroes].mean()),
    )


def final_evaluations(game: RunGame, policy: Player, settings: TrainingSettings, seed: int) -> list[Evaluation]:
    """Play a policy against every bot of the game on deals that decided nothing in its run."""
    asked = settings.final_games
    fresh = derive_seed(seed, "final evaluation")
    return [
        evaluate(game, policy, bot, games=asked, temperature=settings.eval_temperature, seed=fresh)
        for bot in (game.spec.bots if asked else ())
    ]


def most_rise(evaluations: Sequence[tuple[float, float]]) -> float:
    """Return the upper 95% bound on the rise of the outcome over some evaluations.

    The rise is that of the least-squares line, from the first evaluation to the last. A line, because evaluations are
    noisier than a policy's gain between two of them: a series without a new best, or a slump, is no evidence.

    Args:
        evaluations: at least two outcomes with their standard errors, oldest first, made at even intervals.
    """
    outcomes, stderrs = np.array(evaluations).T
    place = np.linspace(-0.5, 0.5, len(outcomes))
    weights = place / (place**2).sum()
    return float(weights @ outcomes) + _Z_95_ONE_SIDED * float(np.linalg.norm(weights * stderrs))


def described(evaluation: Evaluation) -> str:
    """Return an evaluation in words."""
    points = "" if evaluation.points is None else f"{evaluation.points:.2f} points a hand, "
    return (
        f"{points}outcome {evaluation.outcome:+.4f} ± {evaluation.stderr:.4f}, win share {evaluation.win_share:.3f} "
        f"in {evaluation.games} games against {evaluation.opponent}"
    )
