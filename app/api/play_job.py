"""The jobs that play against a person. Games are given by their decisions, so no job remembers a game."""

from functools import partial

import numpy as np

from flyball.app.api.players import fetch_player
from flyball.app.api.playing import PERSON, Answer, Opinion, PlaySpec, Seated
from flyball.app.api.runs import RunLocation, locate_run, silent
from flyball.app.api.watch_job import TOP, Watched
from flyball.app.api.watching import Progress
from flyball.app.config import Compute
from flyball.app.core import BadUsage, derive_seed, split_search
from flyball.app.engine import Report
from flyball.app.games import open_table
from flyball.app.games.session import SLOT, GameSession
from flyball.app.games.table import FINISHED
from flyball.app.job_specs import job
from flyball.app.learning.inference import Policy
from flyball.app.play.judges import load_player_or_judge
from flyball.app.play.own_players import Turn
from flyball.app.play.players import Player
from flyball.app.play.rng import draw_points, number_streams
from flyball.app.play.search import SearchPlayer
from flyball.app.store import MemoryStore, open_store

POSITIONS = 64
"""Positions that a model without a search looks at when it is asked for its opinion."""


@job
def seat_players(spec: PlaySpec, report: Report) -> Seated:  # noqa: ARG001 - a job's signature
    """Find the players, and return their full names (a job). Raises the errors of ``fetch_player``."""
    location, store = locate_run(spec.run, spec.config_file), MemoryStore()
    config = location.config(spec.config)
    names = {PERSON: PERSON}
    for name in spec.players:
        if name not in names:
            names[name] = fetch_player(name, "your opponent", location, config, store, say=silent)
    return Seated(players=tuple(names[name] for name in spec.players))


@job
def answer(spec: PlaySpec, report: Report) -> Answer:  # noqa: ARG001
    """Play the seats that no person has, until a person is to move or the game is over (a job).

    Deterministic on a CPU. A choice depends on the seed and on how many were made before it. ``spec`` has full names.
    """
    location, session = _game(spec)
    table, temperature = session.table(), session.config.evaluation.temperature
    reports: list[Progress] = []
    players = {
        name: Watched(_player(spec, location, session, name), temperature, partial(_note, reports), [])
        for name in set(spec.players) - {PERSON}
    }
    streams, step = number_streams(derive_seed(spec.seed, "choices"), SLOT), len(spec.actions)
    while (seat := int(table.seats()[0])) != FINISHED and spec.players[seat] != PERSON:
        turn = Turn(*table.observe(SLOT), table, SLOT)
        table.step(SLOT, players[spec.players[seat]].decide(turn, draw_points(streams, SLOT + step)))
        step += 1
    return Answer(decisions=tuple(report.decision for report in reports))


def _note(reports: list[Progress], progress: object) -> None:
    reports.append(Progress.model_validate(progress))


@job
def think(spec: PlaySpec, report: Report) -> Opinion:  # noqa: ARG001
    """Return what the first model among the players thinks of the position (a job). ``spec`` has full names.

    The model sees what the seat to move sees. Raises ``BadUsage`` if no player is a model, or the game is over.
    """
    location, session = _game(spec)
    table = session.table()
    if int(table.seats()[0]) == FINISHED:
        raise BadUsage("The game is over.", hint="Start another one.")
    for name in spec.players:
        player = None if name == PERSON else _player(spec, location, session, name)
        if isinstance(player, SearchPlayer | Policy):
            return _opinion(name, player, Turn(*table.observe(SLOT), table, SLOT), session)
    raise BadUsage("No model plays this game, and bots have no opinion.", hint="Play against the champion.")


def _opinion(name: str, player: SearchPlayer | Policy, turn: Turn, session: GameSession) -> Opinion:
    network = player.network if isinstance(player, SearchPlayer) else player
    assert isinstance(network, Policy)
    log_probs, values = network.forward(turn.obs, turn.mask)
    probabilities = np.where(turn.mask[0], np.exp(log_probs[0]), 0)
    best = np.argsort(-probabilities, kind="stable")[:TOP].tolist()
    opinion = Opinion(
        player=name,
        value=float(np.clip(values[0], -1, 1)),
        top=tuple((action, float(probabilities[action])) for action in best if probabilities[action] > 0),
    )
    if not turn.table.spec.searchable:
        return opinion
    positions = split_search(name)[1] or POSITIONS
    search = player if isinstance(player, SearchPlayer) else SearchPlayer(network, session.config, positions)
    value, weighed = search.weigh(turn)
    return opinion.replace(positions=positions, searched_value=value, searched=tuple(weighed[:TOP]))


def _game(spec: PlaySpec) -> tuple[RunLocation, GameSession]:
    location = locate_run(spec.run, spec.config_file)
    return location, GameSession(location.config(spec.config), spec.seed, spec.actions)


def _player(spec: PlaySpec, location: RunLocation, session: GameSession, name: str) -> Player:
    """Return a player by its full name. The process keeps the networks of the latest ones (``PLAYERS``)."""
    compute = Compute(device=spec.device, precision=spec.precision, settings_folder=location.settings_folder)
    game = open_table(session.config, 0).spec
    return load_player_or_judge(open_store(location.store), name, game, compute, session.config)
