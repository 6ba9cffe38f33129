"""``flyball eval``: the strength of a checkpoint. The checkpoint plays one of our games or a Gymnasium environment."""

from pathlib import Path
from typing import Any

import click

from flyball.app.api.runs import RunLocation
from flyball.app.cli.options import FILE, given_options, pick, run_options, seed_option, workers_option
from flyball.app.cli.output import data_only_on_stdout, note, write_json
from flyball.app.config import FEWEST_SIMULATIONS, MOST_SIMULATIONS

SHARED = ("seed", "device", "precision")
OF_MATCHES = ("against", "games", "workers", "reference", "paired")
OF_HEROES = ("mixed", "power", "power_adapters", "league")
OF_GAMES = (*OF_MATCHES, *OF_HEROES, "temperature", "search", "optimal", "exploitability")
WITHOUT_OPPONENTS = ("optimal", "exploitability")
OF_ENVIRONMENTS = ("policy", "episodes", "num_envs", "action_codec", "max_steps", "success_key", "dump_trajectory")


@click.command()
@click.option("--config", "config_key", metavar="KEY", help="Play one of our games.")
@click.option("--env", "environment", metavar="ID", help="Play a Gymnasium environment.")
@click.option(
    "--model",
    metavar="MODEL",
    help="A file; in our games also a folder of flyball train, a hash, a bot, 'current' (default).",
)
@seed_option
@click.option("--device", default="cpu", help="Where networks run: cpu, cuda, cuda:1, auto.")
@click.option("--precision", default="float32", type=click.Choice(["float32", "bfloat16", "auto"]), help="Of networks.")
@click.option(
    "--against",
    default=("random",),
    multiple=True,
    help="Repeatable, or by commas: bots (random, heuristic; in Hearts easy, normal, hard), models as of --model, "
    "STRATEGY:COUNT of the run's league, judges (solver, mcts:1000).",
)
@click.option(
    "--games",
    type=click.IntRange(1),
    help="Against each opponent; with --paired hands, 4,000 if nothing is said.  [default: the configuration's]",
)
@workers_option
@click.option("--temperature", type=click.FloatRange(0, 10), help="Of all players; 0 is greedy.  [default: configured]")
@click.option(
    "--search",
    type=click.IntRange(FEWEST_SIMULATIONS, MOST_SIMULATIONS),
    help="Positions that the model looks ahead at for a move.",
)
@click.option("--paired", is_flag=True, help="Hearts: compare with a reference that is dealt the same cards.")
@click.option("--reference", metavar="PLAYER", help="Of --paired.  [default: the opponent itself]")
@click.option(
    "--optimal",
    type=click.IntRange(1),
    metavar="COUNT",
    help="Play nobody: give the share of optimal moves in so many positions, for instance 2000.",
)
@click.option(
    "--exploitability",
    is_flag=True,
    help="Play nobody: compute what best responses gain against the model (OpenSpiel).",
)
@click.option(
    "--mixed",
    type=click.Choice(["league", "baselines", "self"]),
    help="Language models: play among opponents drawn for each game from the league or the bots, or only itself.",
)
@click.option("--power", metavar="POWER", help="Of --mixed: the model's seat, such as FRANCE.  [default: all in turn]")
@click.option(
    "--power-adapters",
    multiple=True,
    metavar="POWER=PLAYER",
    help="Repeatable, or by commas, with --power: who plays the other powers.  [default: base_model]",
)
@click.option(
    "--league",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of --mixed league: a league.json.  [default: the run's league]",
)
@click.option("--policy", default="mlp", help="What plays: mlp, random, or one that a package brings.")
@click.option("--episodes", default=100, type=click.IntRange(1), help="Of all environments.")
@click.option("--num-envs", default=1, type=click.IntRange(1), help="Environments at once.")
@click.option("--action-codec", metavar="NAME", help="From outputs to actions: greedy, sample, clip, tanh, raw.")
@click.option("--max-steps", type=click.IntRange(1), help="Of each environment.  [default: what its time limit needs]")
@click.option(
    "--success-key",
    metavar="KEY",
    help="Of info: what says that an episode succeeded.  [default: none, it succeeds by ending of itself]",
)
@click.option(
    "--dump-trajectory",
    type=FILE,
    help="Write a line of JSON a step: env, episode, t, action, reward, done, trunc, dist.",
)
@click.option("--json", is_flag=True, expose_value=False, help="Write JSON, as it always does.")
@run_options
def eval(location: RunLocation, /, config_key: str | None, environment: str | None, **options: Any) -> None:  # noqa: A001
    """Evaluate a checkpoint or a bot and write one JSON object.

    The same arguments write the same bytes.

    --config plays one of our games against other players, seats in rotation, with the temperature and openings of the
    configuration. A STRATEGY chooses members of the league: champion, top_k, recent, random, round_robin or pfsp; so
    top_k:3 stands for the three models of the highest rating. top_k and recent choose models only, the others bots of
    the league too; where it has fewer, all of them are played.

    In 'results', 'outcome' is the mean outcome of a game in the game's own units, with its 95% interval. 'score' is
    linear in it: 1/2 between equals; in games that are won, drawn or lost, the share of opponents beaten, ties half.
    'won' is the share of games won, ties half. 'rotations' counts groups of games with one deal or opening and the
    model in each seat, by the half points that they brought: 0, 1 … for two players 4. Where outcomes are graded,
    'graded' has the sums of the groups' scores and of their squares instead. 'stderr' is that of the mean score, from
    these groups. 'distinct_games' tells how many games were not repetitions of another, which say nothing new,
    'undecided' in how many no player had a decision to make.

    Judges are players that no model trains against. solver plays perfectly (connect four and tic-tac-toe). mcts:1000
    is a Monte Carlo tree search with 1,000 random playouts a move (Shogi, minishogi, and OpenSpiel's games for two with
    perfect information and without chance).

    --optimal (games with a solver) asks for a move in positions from random play in which legal moves differ in value.
    A move is optimal if it keeps the value: win, draw or loss. 'hard' are the positions in which neither side could
    win with the next move. Positions depend on --seed alone. The temperature is 0 unless --temperature is given.

    --exploitability (small games of OpenSpiel, no general-sum ones) computes best responses to the model at its
    temperature. 'nash_conv' is what all seats together gain by them, each alone, in the game's own units; 0 is an
    equilibrium. 'exploitability' is half of it, in games for two. It judges games with hidden cards, where to beat all
    known opponents says little: self-play by policy gradients need not approach an equilibrium.

    --search lets the model search; an opponent searches with +64 after its name, such as champion+64. Two-player games
    without chance and hidden cards can be searched. A search takes the best move that it finds, at any temperature.

    --paired (Hearts) plays the hands of each deal twice: with the model, and with a reference in its place. Results
    are the difference in points a hand, its 95% interval and p-value, win shares with ties split, moon rates. --games
    are the hands of each of the two; so 4,000 are 1,000 deals, each in four seats, and 8,000 hands to play.

    --mixed and --power-adapters (language models) seat different opponents at one table: members of the league with
    the shares of its matchmaking, the model itself left out; the configuration's bots; or copies of the model. Results
    are the share of the others that it beat, its points and ranks by power, and ratings of all who played, by
    Plackett-Luce over the final ranks; pairs of seats with the same player are skipped.

    --env plays a Gymnasium environment. A success, if no --success-key says otherwise, is an episode that ended of
    itself (terminated) and was not cut off (truncated): at a goal that is what it says, but where the end is a failure,
    as the fall of CartPole's pole, success_rate says how often it failed, and mean_return how good the policy is.
    'success' in the JSON names the rule that was used, 'done' or 'info.KEY'. What all figures mean is written in
    app/gym/episodes.py, the format of the model's file in app/gym/players.py.

    Where the device is missing it writes {"skipped": reason} and exits with 0.
    """
    _check_combination(config_key, environment, options)
    from flyball.app.learning.devices import missing_device, resolve  # loads torch
    from flyball.app.learning.network import threads

    if reason := missing_device(options["device"]):
        write_json({"skipped": reason})
        return
    with data_only_on_stdout(), threads(1):
        options["device"] = str(resolve(options["device"]))
        summary = _evaluate(location, config_key, environment, options)
    write_json(summary)


def _evaluate(
    location: RunLocation, config_key: str | None, environment: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    if environment is not None:
        from flyball.app.cli.episodes import evaluate_environment

        return evaluate_environment(environment, **pick(options, "model", *SHARED, *OF_ENVIRONMENTS))
    from flyball.app.api.evaluation import evaluate_gauntlet
    from flyball.app.api.exploitability import measure_exploitability
    from flyball.app.api.opponents import EvaluationRequest
    from flyball.app.api.optimal import measure_optimal
    from flyball.app.api.paired import compare_hands

    assert config_key is not None
    config = location.config(config_key)
    temperature = options["temperature"]
    if options["optimal"] is not None and temperature is None:
        temperature = 0.0
    if temperature is not None:
        config = config.replace(evaluation=config.evaluation.replace(temperature=temperature))
    model = "current" if options["model"] is None else options["model"]
    if options["search"] is not None:
        model += f"+{options['search']}"
    against = [name.strip() for names in options["against"] for name in names.split(",")]
    if options["mixed"] or options["power_adapters"]:
        from flyball.app.api.hero_matches import HeroMatchRequest, evaluate_hero

        adapters = _power_adapters(options["power_adapters"])
        named = pick(options, *SHARED, "mixed", "power", "league", "games")
        hero_request = HeroMatchRequest(location, config, model, power_adapters=adapters, **named, say=note)
        return evaluate_hero(hero_request).model_dump(mode="json")
    others = pick(options, *SHARED, "games", "workers", "reference", "paired")
    request = EvaluationRequest(location, config, model, against, **others, say=note)
    if options["optimal"] is not None:
        return measure_optimal(request, options["optimal"]).model_dump(mode="json")
    if options["exploitability"]:
        return measure_exploitability(request).model_dump(mode="json")
    return compare_hands(request) if request.paired else evaluate_gauntlet(request).model_dump(mode="json")


def _power_adapters(assignments: tuple[str, ...]) -> dict[str, str]:
    pairs = [assignment.strip().partition("=") for text in assignments for assignment in text.split(",")]
    for power, _, player in pairs:
        if not (power and player):
            raise click.UsageError("--power-adapters takes POWER=PLAYER, for instance ENGLAND=current.")
    players = {power: player for power, _, player in pairs}
    if len(players) < len(pairs):
        raise click.UsageError("--power-adapters names a power twice: leave one of its players out.")
    return players


def _check_combination(config_key: str | None, environment: str | None, options: dict[str, Any]) -> None:
    if config_key is None and environment is None:
        raise click.UsageError("Say what to play: --config KEY for one of our games, or --env ID.")
    if config_key is not None and environment is not None:
        raise click.UsageError("--config plays one of our games, --env an environment: leave one of them out.")
    ours, theirs = ("--config", "--env") if environment is None else ("--env", "--config")
    unfit = OF_ENVIRONMENTS if environment is None else OF_GAMES
    flags = given_options(click.get_current_context())
    judged = [flags[name] for name in WITHOUT_OPPONENTS if name in flags]
    if len(judged) > 1:
        raise click.UsageError(f"{' and '.join(judged)} are two judges: leave one of them out.")
    for name, flag in flags.items():
        if judged and name in OF_MATCHES:
            raise click.UsageError(f"{flag} is of matches, and {judged[0]} plays none: leave one of them out.")
        if name in unfit:
            raise click.UsageError(f"{flag} goes with {theirs}, not with {ours}.")
    if options["reference"] is not None and not options["paired"]:
        raise click.UsageError("--reference goes with --paired.")
    _check_hero(flags, options["mixed"])


def _check_hero(flags: dict[str, str], mixed: str | None) -> None:
    """Refuse options that do not fit a hero match."""
    if "mixed" in flags and "power_adapters" in flags:
        raise click.UsageError("--mixed draws the opponents that --power-adapters names: leave one of them out.")
    if "power_adapters" in flags and "power" not in flags:
        raise click.UsageError("--power-adapters goes with --power, which says where the model itself sits.")
    if "power" in flags and not {"mixed", "power_adapters"} & flags.keys():
        raise click.UsageError("--power goes with --mixed or --power-adapters.")
    if "league" in flags and mixed != "league":
        raise click.UsageError("--league goes with --mixed league.")
    if {"mixed", "power_adapters"} & flags.keys():
        for name in ("against", "workers", "reference", "paired", "search", *WITHOUT_OPPONENTS):
            if name in flags:
                raise click.UsageError(f"{flags[name]} does not go with --mixed or --power-adapters: leave it out.")
