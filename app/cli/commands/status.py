"""``flyball status``: what is known of a run."""

import click

from app.cli.output import note, show, stdout_console, write_json
from app.cli.place import Place, json_option, placed
from app.cli.selecting import open_journal
from app.cli.watching import read_board
from app.config import Deployment, RunSettings
from app.dashboard import daemons_table, state_counts, status_table, waiting_lines
from app.runtime.clock import SystemClock

MISSED_BEATS = 3
"""So many heartbeats have to be missing before a daemon is called silent."""


def silent_after(settings: RunSettings | None, deployment: Deployment) -> float:
    """Return after how many seconds without a word a daemon is called silent: the broker speaks with the ticks."""
    return MISSED_BEATS * max(deployment.heartbeat_seconds, settings.tick_seconds if settings else 0.0)


@click.command()
@json_option
@placed
def status(place: Place, *, as_json: bool) -> None:
    """Show what the journal says of configurations and daemons; the run need not be running.

    games/s: games of self-play a second, over the last minute. step: trainings of the model trained last. Elo, score:
    those of the model rated last, current or not yet; Elo with the random bot at 0, and its standard error. loops:
    trainings that were evaluated and judged; +/-: how many models were promoted and rejected, operators' decisions
    included, but not the first model, which nobody trained. behind: events that a daemon has not read yet. jobs: what
    it computes now, and can at most. A configuration that waits for something has a line that says for what, and what
    to do.
    """
    with open_journal(place) as reader:
        board = read_board(place.folder, reader, lambda letter: note(f"{letter.position}: {letter.error}"))
        head = reader.head
    now = board.status(SystemClock().now(), silent_after(board.settings, place.load().deployment))
    if as_json:
        write_json(now.model_dump(mode="json") | {"head": head})
        return
    width = stdout_console().width
    show(status_table(now, width), *waiting_lines(now), "", daemons_table(now, width))
    note(f"{head} events; daemons: {state_counts(now)}")
