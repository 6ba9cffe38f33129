"""The job that plays a watched game, and reports each decision when it is taken, so that viewers can follow."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball.app.api.players import AGAINST, fetch_player
from flyball.app.api.runs import locate_run, silent
from flyball.app.api.watching import Decision, Progress, WatchedGame, WatchSpec, check_watchable
from flyball.app.config import Compute
from flyball.app.core import BadUsage
from flyball.app.engine import Report
from flyball.app.games import open_table
from flyball.app.job_specs import job
from flyball.app.play.judges import load_player_or_judge
from flyball.app.play.matches import MatchPlan, play_rotations
from flyball.app.play.own_players import DecidingPlayer, Points, Turn
from flyball.app.play.players import BUILT_IN, Player
from flyball.app.play.rollout import ask_any
from flyball.app.play.search import SearchPlayer
from flyball.app.store import MemoryStore

TOP = 5
"""Most actions of a decision that are reported with their probabilities."""


class Watched(DecidingPlayer):
    """A player whose decisions are reported. It plays as it would unwatched."""

    def __init__(self, player: Player, temperature: float, report: Report, seen: list[int]) -> None:
        self._player, self._temperature, self._report = player, temperature, report
        self._seen = seen  # entries of the history that were reported; all players of a game share it

    def decide(self, turn: Turn, points: Points) -> NDArray[np.int32]:
        """See ``DecidingPlayer.decide``; the turn is of one game."""
        chosen = ask_any(self._player, turn, self._temperature, points)
        value, probabilities = self._evaluation(turn, chosen.value, chosen.policy)
        history = turn.table.history(int(turn.slots[0]))
        best = np.argsort(-probabilities, kind="stable")[:TOP].tolist()
        decision = Decision(
            played=len(history),
            seat=int(turn.table.seats()[turn.slots[0]]),
            action=int(chosen.action[0]),
            value=value,
            top=tuple((action, float(probabilities[action])) for action in best if probabilities[action] > 0),
        )
        news = Progress(history=tuple(history[len(self._seen) :]), decision=decision)
        self._seen[:] = history
        self._report(news.model_dump(mode="json"))
        return chosen.action

    def _evaluation(self, turn: Turn, value: Any, policy: Any) -> tuple[float | None, NDArray[np.float32]]:
        """Return the position's value, None if unknown, and the probability of each action [A].

        ``value`` [1] and ``policy`` [1, A] are a search's results; other players have none.
        """
        if isinstance(self._player, SearchPlayer):
            return float(value[0]), policy[0]
        if isinstance(self._player, DecidingPlayer):
            return None, np.zeros(turn.mask.shape[1], dtype=np.float32)
        log_probs, values = self._player.forward(turn.obs, turn.mask)
        expected = None if isinstance(self._player, BUILT_IN) else float(np.clip(values[0], -1, 1))
        return expected, np.where(turn.mask[0], np.exp(log_probs[0]), 0).astype(np.float32)


@job
def watch(spec: WatchSpec, report: Report) -> WatchedGame:
    """Play a game, and report ``Progress`` (a job).

    Deterministic on a CPU. The game is the first one of a match with this seed, from this seat. Raises ``Unwatchable``,
    ``BadUsage``, and the errors of ``fetch_player`` and ``load_player_or_judge``.
    """
    location = locate_run(spec.run, spec.config_file)
    config = location.config(spec.config)
    check_watchable(config)
    if spec.seat >= config.players:
        raise BadUsage(f"{config.key} has no seat {spec.seat}: its seats are 0 to {config.players - 1}.")
    store, game = MemoryStore(), open_table(config, 0).spec
    named = {"player": spec.player, AGAINST: spec.against}
    names = [fetch_player(name, who, location, config, store, say=silent) for who, name in named.items()]
    compute = Compute(device=spec.device, precision=spec.precision, settings_folder=location.settings_folder)
    settings, seen = config.evaluation, list[int]()
    players = [
        Watched(load_player_or_judge(store, name, game, compute, config), settings.temperature, report, seen)
        for name in names
    ]
    plan = MatchPlan(1, spec.seed, settings.temperature, settings.opening_plies, first=spec.seat)
    outcomes, _ = play_rotations(config, players[0], players[1], plan)
    return WatchedGame(
        player=names[0],
        against=names[1],
        history=tuple(outcomes.histories[0]),
        returns=tuple(outcomes.returns[0].tolist()),
        truncated=bool(outcomes.truncated[0]),
    )
