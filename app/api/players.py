"""Looking up bots and models by the names that people give them."""

from flyball.app.api.models import UnknownModel, check_game, checked_search, fetch_model
from flyball.app.api.runs import RunLocation, Say
from flyball.app.backends import OURS
from flyball.app.config import LANGUAGE_BACKEND, GameConfig
from flyball.app.core import HEURISTIC, BadUsage, is_judge
from flyball.app.games import bots_of, open_table
from flyball.app.store import BlobStore, get_checkpoint

AGAINST = "against"
"""The argument that also accepts strategies."""


def fetch_player(
    name: str, argument: str, location: RunLocation, config: GameConfig, store: BlobStore, *, say: Say
) -> str:
    """Find a bot or model; return its name for ``load_player``.

    A model is copied into ``store``. A suffix such as ``+64`` makes a model search 64 positions for each move.
    ``argument`` names the argument in messages. Raises the errors of ``fetch_model``, ``ForeignModel``, and for a model
    that cannot play ``WrongModel``, ``BadParameters`` or ``Unsearchable``.
    """
    if config.backend == LANGUAGE_BACKEND:
        from flyball.app.api.text_players import fetch_text_player  # loads torch

        return fetch_text_player(name, argument, location, config, store, say=say)
    from flyball.app.play.judges import load_judge
    from flyball.app.play.players import load_player  # loads torch

    if is_judge(name):
        load_judge(name, config)
        return name
    spec, bots = open_table(config, 0).spec, bots_of(config)
    if (bot := spec.bot(name)) in bots:
        return bot
    name, search = checked_search(name, argument)
    if search and spec.bot(name) in bots:
        raise BadUsage(f"{argument} {name}{search}: bots do not search; leave {search} out.")
    if name == HEURISTIC:
        raise UnknownModel(f"{argument}: {config.key} has no heuristic player.", hint=f"It has {', '.join(bots)}.")
    try:
        model = fetch_model(name, argument, location, config.key, store, say=say)
    except UnknownModel as error:
        strategy = " A strategy is written top_k:3." if argument == AGAINST else ""
        bots_hint = f"Bots of {config.key} are {', '.join(bots)}."
        raise UnknownModel(error.message, hint=f"{error.hint} {bots_hint}{strategy}") from error
    check_game(f"{argument} {name}", get_checkpoint(store, model).manifest, config, location, say)
    if config.backend in OURS:  # a backend of the user's own has a job that says what it cannot play
        load_player(store, model + search, spec, config=config)
    return model + search
