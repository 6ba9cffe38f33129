"""The league as a fold of the journal: admissions, retirements, ratings and games are events."""

from app.config import AdmissionSettings
from app.events import (
    CheckpointAdded,
    CheckpointRetired,
    EloUpdated,
    EvaluationCompleted,
    Event,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    RegressionDetected,
)
from app.league.league import Agent, League
from app.league.totals import totals_of

LEAGUE_READS: frozenset[type[Payload]] = frozenset(
    {
        CheckpointAdded,
        CheckpointRetired,
        EloUpdated,
        EvaluationCompleted,
        ModelPromoted,
        ModelRolledBack,
        PromotionRejected,
        RegressionDetected,
    }
)
"""The payload types that a league follows from."""


def fold_league(league: League, event: Event[Payload], settings: AdmissionSettings) -> League:
    """Return the league after one more event about its configuration."""
    return league_after(league, event.data, event.recorded_us, settings)


def league_after(league: League, data: Payload, now_us: int, settings: AdmissionSettings) -> League:
    """Return the league after what an event at a time (microseconds since 1970 UTC) says."""
    match data:
        case CheckpointAdded():
            return _added(league, data, now_us, settings)
        case CheckpointRetired(model=model):
            return league.without(model)
        case EloUpdated(ratings=ratings):
            for one in ratings:
                league = league.with_rating(one.agent, one.elo, one.elo_stderr, one.games)
            return league
        case EvaluationCompleted(purpose=purpose) if purpose != "gate":
            return _played(league, data)
    return _decided(league, data, settings)


def _decided(league: League, data: Payload, settings: AdmissionSettings) -> League:
    match data:
        case ModelPromoted(model=model):
            return _tidied(league.replace(champion=model), settings)
        case ModelRolledBack(from_model=bad, to_model=model):
            good = None if league.last_good == bad else league.last_good
            return _tidied(league.replace(champion=model, last_good=good), settings)
        case PromotionRejected():
            return _tidied(league, settings)
        case RegressionDetected(last_good=good) if good is not None:
            return league.replace(last_good=good)
    return league


def _added(league: League, data: CheckpointAdded, now_us: int, settings: AdmissionSettings) -> League:
    agent = Agent(
        id=data.model,
        kind="checkpoint",
        step=data.step,
        elo=data.elo,
        elo_stderr=data.elo_stderr,
        matches=data.games,
        created_us=now_us,
        parent=data.parent,
        roles=data.roles,
    )
    return _tidied(league.with_agent(agent), settings)


def _played(league: League, data: EvaluationCompleted) -> League:
    """Take in the games of a gauntlet; gate games decide about one pair over and over and would bias what they say."""
    for played in totals_of(data.model, data.results):
        league = league.with_games(played)
    return league


def _tidied(league: League, settings: AdmissionSettings) -> League:
    """Forget who retired long ago, and the games of models that did not stay."""
    return league.forgetting((league.latest_step or 0) - settings.remembered_for)
