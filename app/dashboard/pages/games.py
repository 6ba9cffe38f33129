"""Games: watch two players of a configuration, move by move; begin a game of one's own, and find the kept ones."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.app.api.kept_games import kept_names
from flyball.app.api.models import CURRENT, SHORTEST_HASH, checked_search
from flyball.app.api.runs import RunLocation
from flyball.app.api.watching import WatchSpec, check_watchable
from flyball.app.config import FrozenModel, GameConfig
from flyball.app.core import HEURISTIC, RANDOM, BadUsage, ConfigKey, FlyballError, is_judge, split_search
from flyball.app.dashboard.feed import Feed
from flyball.app.dashboard.jobs import PageJob, job_of, jobs_of, may_begin, stop_job_of
from flyball.app.dashboard.layout import Page, feed_of, render, whole_number
from flyball.app.dashboard.pages.kept_games import kept_row
from flyball.app.dashboard.watched import record_of, seat_names, view_of
from flyball.app.games import bots_of, open_table
from flyball.app.status.summary import short, show_elo

JOB = "flyball.app.api.watch_job:watch"
DEADLINE_SECONDS = 900.0
"""Longest time for a game. A game of Shogi by a search of hundreds of positions takes minutes."""

FAR_BEHIND = 1000
"""Unread events at which the feed's current model may be outdated."""

HASH = re.compile(rf"[0-9a-f]{{{SHORTEST_HASH},64}}")
MOST_LISTED = 20
"""Most kept games that are listed."""

MOST_MEMBERS = 30
"""Most members of a league that are offered as players."""


@dataclass(frozen=True, slots=True)
class GameRequest:
    """A game that a page asks for. Where a person plays, the seats are the person's, and there is no player."""

    config: str
    against: str
    seat: str
    seed: str
    player: str = ""

    @classmethod
    def of(cls, request: Request, configs: list[str]) -> "GameRequest":
        """Read the query; missing fields get defaults. ``key`` is the configuration that another page showed."""
        chosen = [key for key in configs if key == request.query_params.get("key")] or configs
        usual = {"config": chosen[0] if chosen else "", "player": "current", "against": RANDOM}
        usual |= {"seat": "0", "seed": "0"}
        return cls(**{name: request.query_params.get(name, "").strip() or value for name, value in usual.items()})

    @property
    def query(self) -> str:
        """The game as a URL's query."""
        names = ("config", "player", "against", "seat", "seed")
        return urlencode({name: getattr(self, name) for name in names})

    def spec(self, feed: Feed) -> WatchSpec:
        """Return the job's arguments. Raises ``BadUsage``."""
        player, against = (pinned(feed, self.config, name) for name in (self.player, self.against))
        fields = {"config": self.config, "player": player, "against": against, "seat": self.seat, "seed": self.seed}
        return validated(WatchSpec, {**feed.place.arguments, **fields})


M = TypeVar("M", bound=FrozenModel)


def validated(kind: type[M], fields: Mapping[str, Any]) -> M:
    """Return a job's arguments from a form. Raises ``BadUsage``."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadUsage(f"{first['loc'][-1]}: {first['msg']}.") from error


def pinned(feed: Feed, config: str, player: str) -> str:
    """Return a player's name, with the hash of the current model in place of its name.

    The name stays while the feed is too far behind to know the model.
    """
    model, simulations = split_search(player)
    current = _current(feed, config) if model in CURRENT else None
    if current is None:
        return player
    return current if simulations is None else f"{current}+{simulations}"


async def games(request: Request) -> Response:
    """Show the forms and the kept games; with a query, also begin and show a watched game."""
    feed = feed_of(request)
    asked = GameRequest.of(request, await asyncio.to_thread(_configs, request))
    job: PageJob | None = None
    problem = ""
    if "config" in request.query_params:
        try:
            await asyncio.to_thread(_check, feed.place, asked)
            if may_begin(request):
                job = jobs_of(request).begin(JOB, asked.spec(feed).model_dump(), DEADLINE_SECONDS)
        except FlyballError as error:
            problem = str(error)
    return await games_page(request, asked, job, problem=problem)


async def games_page(
    request: Request,
    asked: GameRequest,
    job: PageJob | None = None,
    *,
    problem: str = "",
    own: GameRequest | None = None,
    own_problem: str = "",
) -> Response:
    """Show the page with a watched game, and with what is wrong with either form.

    ``asked`` fills the form for watching, and ``own`` the form for playing.
    """
    feed = feed_of(request)

    def page() -> Response:
        configs = _configs(request)
        names = list(kept_names(feed.place.folder))
        return render(
            request,
            "games.html",
            configs=list(dict.fromkeys((*configs, asked.config))),
            asked=asked,
            key=asked.config,
            problem=problem,
            own=own or GameRequest(asked.config, CURRENT[0], "0", ""),
            own_problem=own_problem,
            status_code=400 if own_problem else 200,
            kept=[kept_row(feed.place, name) for name in names[:MOST_LISTED]],
            unlisted=len(names[MOST_LISTED:]),
            **_shown(request, job, asked),
        )

    return await asyncio.to_thread(page)


async def part(request: Request) -> Response:
    """Show a ply of a game that was begun. The page refreshes this part while the game is being played."""
    asked = GameRequest.of(request, [])
    job = job_of(request)
    return await asyncio.to_thread(
        lambda: render(request, "games_part.html", asked=asked, **_shown(request, job, asked))
    )


async def stop(request: Request) -> Response:
    """Stop a game, and show it as far as it was played."""
    await stop_job_of(request)
    return await part(request)


def players(request: Request) -> Response:
    """List players of a configuration for the form."""
    feed, key = feed_of(request), request.query_params.get("config", "")
    with feed.reading() as model:
        view = model.leagues.views.get(key)
        rated = {} if view is None else dict(view.rated)
    try:
        offered = _players(feed.place.config(key), rated)
    except FlyballError:
        offered = []
    return render(request, "games_players.html", offered=offered)


def _configs(request: Request) -> list[str]:
    """Return the keys of the run's configurations."""
    feed = feed_of(request)
    with feed.reading() as model:
        keys = [str(key) for key in model.board.configs]
    return keys or [str(config.key) for config in feed.place.load().run.configs]


def _current(feed: Feed, config: str) -> str | None:
    """Return the current model of a configuration. None while the feed is too far behind to know it."""
    with feed.reading() as model:
        row = model.board.configs.get(ConfigKey(config))
        return row.model if row and model.position > feed.head - FAR_BEHIND else None


def _check(place: RunLocation, asked: GameRequest) -> None:
    """Refuse games that cannot be watched."""
    config = place.config(asked.config)
    check_watchable(config)
    for name in (asked.player, asked.against):
        check_player(config, name)


def check_player(config: GameConfig, name: str) -> None:
    """Refuse players that are files, which a command line may name.

    Not everybody who sees the dashboard is allowed to read them. Raises ``BadUsage``, also for a search of too many
    positions.
    """
    bots = bots_of(config)
    model, _ = split_search(name)
    if not (name in (*bots, HEURISTIC) or is_judge(name) or model in CURRENT or HASH.fullmatch(model)):
        raise BadUsage(
            f"There is no player {name!r} of {config.key}.",
            hint=f"There are current, members of the league by their hashes, {', '.join(bots)}, and judges.",
        )
    checked_search(name, "against")


def _players(config: GameConfig, rated: Mapping[str, tuple[int, float, float]]) -> list[tuple[str, str]]:
    """Return names and descriptions of players. ``rated`` has the step, Elo and standard error of each model."""
    offered = [("current", "the current champion")]
    if open_table(config, 0).spec.searchable:
        offered.append(("current+64", "the champion, searching 64 positions a move"))
    offered += [(bot, "a bot") for bot in bots_of(config)]
    best = sorted(rated, key=lambda model: -rated[model][1])[:MOST_MEMBERS]
    return offered + [(short(model), f"Elo {show_elo(*rated[model][1:])}, step {rated[model][0]}") for model in best]


def _shown(request: Request, job: PageJob | None, asked: GameRequest) -> dict[str, Any]:
    """Return the template values of the part that shows a game. The job says what is played, not the query."""
    if job is None or job.function != JOB:
        return {"job": None, "view": None}
    number = whole_number(request.query_params.get("ply", ""))
    config = feed_of(request).place.config(job.spec["config"])
    over = job.over  # before the reports, which may grow meanwhile
    record = record_of(config, job)
    names = seat_names(config, record, asked.player, asked.against, job.spec["seat"])
    query = f"{asked.query}&job={job.key}"
    return {
        "job": job,
        "over": over,
        "error": job.error,
        "page": f"/games?{asked.query}&",
        "part": f"/games/part?{query}&",
        "stop": f"/games/stop?{query}",
        "follow": number is None,
        "view": view_of(config, record, names, number),
    }


PAGE = Page(
    "/games",
    "Games",
    (
        Route("/games", games),
        Route("/games/part", part),
        Route("/games/stop", stop),
        Route("/games/players", players),
    ),
    keyed=True,
)
