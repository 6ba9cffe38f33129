"""``flyball experience``: exchange decisions with other programs, as lines of JSON."""

from pathlib import Path

import click

from flyball.app.api.runs import RunLocation
from flyball.app.cli.options import FILE, json_option, run_options, seed_option
from flyball.app.cli.output import note, write_values

file_argument = click.argument("file", type=FILE)
game_option = click.option("--config", "--game", "config_key", metavar="KEY", required=True, help="Whose game it is.")


@click.group()
def experience() -> None:
    """Write and check experience: a line of JSON for each decision.

    The fields: obs, mask, action, reward, value, log_prob, done, game_id, step_id, seat. A file is learned from by
    flyball train GAME --start bc --set cloning.experience=FILE.
    """


@experience.command()
@file_argument
@game_option
@click.option("--model", default="random", help="Who sits in every seat: a player as of flyball eval.")
@click.option("--games", "--hands", default=100, type=click.IntRange(1), help="How many.")
@seed_option
@click.option("--temperature", default=1.0, type=click.FloatRange(0, 10, min_open=True))
@click.option("--rewards", type=click.Choice(["terminal", "per_trick", "shaped"]), help="[default: configured]")
@json_option
@run_options
def export(
    location: RunLocation,
    file: Path,
    *,
    config_key: str,
    model: str,
    games: int,
    seed: int,
    temperature: float,
    rewards: str | None,
    as_json: bool,
) -> None:
    """Play games and write every decision of every seat into FILE."""
    from flyball.app.api.players import fetch_player
    from flyball.app.config import Compute
    from flyball.app.core import writing
    from flyball.app.games import open_table
    from flyball.app.learning.network import threads
    from flyball.app.play.players import load_player
    from flyball.app.play.selfplay import play_lessons
    from flyball.app.store import MemoryStore, experience_lines

    config = location.config(config_key)
    if rewards is not None:
        config = config.replace(selfplay=config.selfplay.replace(rewards=rewards))
    store = MemoryStore()
    name = fetch_player(model, "model", location, config, store, say=note)
    compute = Compute(settings_folder=location.settings_folder)
    player = load_player(store, name, open_table(config, 0).spec, compute, config)
    rows = played = 0
    with threads(1), writing(file), file.open("w", encoding="utf-8") as lines:
        for shard in play_lessons(config, player, name, games, seed=seed, temperature=temperature):
            lines.writelines(f"{line}\n" for line in experience_lines(shard, played))
            rows, played = rows + shard.rows, played + shard.games
            note(f"{played}/{games} games")
    values = {"file": str(file), "game": config.key, "player": name, "games": played, "rows": rows}
    write_values(values, as_json=as_json)


@experience.command()
@file_argument
@game_option
@json_option
@run_options
def check(location: RunLocation, file: Path, *, config_key: str, as_json: bool) -> None:
    """Check that FILE holds valid experience, and say what is in it.

    Every line must be valid, and the lines must make whole episodes. An error names the line and the field, and the
    exit code is 2. Steps that no line has are counted as left out. If the file should have the decisions of every seat,
    as those of flyball experience export do, each such step is a missing line.
    """
    import numpy as np

    from flyball.app.core.legal import legal_counts
    from flyball.app.store import load_experience, steps_left_out

    config = location.config(config_key)
    shard = load_experience(file, config)
    values = {
        "file": str(file),
        "game": config.key,
        "games": shard.games,
        "rows": shard.rows,
        "episodes": int((shard.done | shard.truncated).sum()),
        "truncated": int(shard.truncated.sum()),
        "steps_left_out": steps_left_out(shard),
        "best_outcome": round(float(shard.returns.max()), 6),
        "legal_actions": round(float(legal_counts(shard.mask).mean()), 3),
        "seats": np.unique(shard.seat).tolist(),
        "sha256": shard.meta.model,
    }
    write_values(values, as_json=as_json)
    if values["steps_left_out"]:
        note("Some steps of games are left out: are lines missing, or were only some seats' decisions written?")
