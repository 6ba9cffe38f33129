"""Members of the league in a gauntlet."""

from collections.abc import Collection

from app.config import EvaluationSettings
from app.core import ANCHOR, Elo, ModelHash
from app.evaluation import MEMBER
from app.events import EvaluationRequested
from app.league import Agent, League, Wanted, select


def members(
    league: League,
    request: EvaluationRequested,
    elo: float | None,
    taken: Collection[str],
    settings: EvaluationSettings,
) -> tuple[tuple[str, ModelHash], ...]:
    """Return the members to play, each with its role.

    The newest lasting anchors come first, then others that are drawn: those nearer in strength to the current model are
    likelier. Members without a rating are skipped.

    Args:
        league: of the configuration.
        request: whose seed decides.
        elo: of the current model, if there is one.
        taken: opponents that are played anyway.
        settings: numbers of opponents.
    """
    lasting = [agent.id for agent in reversed(league.lasting)][: settings.anchors]
    hero = Agent(
        id=request.model, kind="checkpoint", step=request.step, elo=None if elo is None else Elo(elo), elo_stderr=None
    )
    drawn = select(league, "pfsp", Wanted(hero, len(league.active), request.seed, "var"))
    fit = [agent.id for agent in drawn if agent.kind == "checkpoint" and agent.elo is not None]
    others = [name for name in fit if name not in taken and name not in lasting][: settings.members]
    named = ((ANCHOR, lasting), (MEMBER, others))
    return tuple((f"{role}{number}", ModelHash(name)) for role, names in named for number, name in enumerate(names, 1))
