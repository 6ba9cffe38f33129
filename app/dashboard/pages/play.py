"""Play: a person plays a game against the run's models and bots.

A page asks for itself, htmx for the part of it that shows the game.
"""

import asyncio
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from flyball.app.api.playing import PERSON, PlaySpec, check_playable
from flyball.app.core import BadUsage, FlyballError, derive_seed
from flyball.app.dashboard.boards.spots import SpotPath
from flyball.app.dashboard.layout import feed_of, render, whole_number
from flyball.app.dashboard.pages.games import GameRequest, check_player, games_page, pinned, validated
from flyball.app.dashboard.play_view import play_view
from flyball.app.dashboard.playing import GameGone, PlayedGame, PlayedGames
from flyball.app.dashboard.session import form_of
from flyball.daemons.clock import SystemClock, boot_id

ANSWER_SECONDS = 0.4
"""Wait for a quick answer before a page is shown, so that it needs no second look."""

MOST_LETTERS = 40
"""Letters of the picked spots."""


async def begin(request: Request) -> Response:
    """Begin a game as the form says."""
    fields = await form_of(request)
    asked = GameRequest(**{name: fields.get(name, "").strip() for name in ("config", "against", "seat", "seed")})
    try:
        game = await asyncio.to_thread(_new_game, request, asked)
    except FlyballError as error:
        watched = GameRequest.of(request, [asked.config])
        return await games_page(request, watched, own=asked, own_problem=str(error))
    _games(request).add(game)
    return RedirectResponse(f"/games/play/{game.id}", status_code=303)


async def show(request: Request) -> Response:
    """Show a game."""
    try:
        game = _games(request).find(request.path_params["id"])
    except GameGone as error:
        return _answer(request, problem=str(error), view=None, status_code=404)
    return await _shown(request, game)


async def act(request: Request) -> Response:
    """Play a move, ask for an opinion, keep the game, or try again what failed."""
    games, fields = _games(request), await form_of(request)
    try:
        game = games.find(request.path_params["id"])
    except GameGone as error:
        return _answer(request, problem=str(error), view=None, status_code=404)
    try:
        match request.path_params["what"]:
            case "move":
                await games.settle(game)
                await games.play(game, *(_number(fields, name) for name in ("action", "after")))
            case "think":
                await games.think(game, ANSWER_SECONDS)
            case "keep":
                await games.keep(game)
            case "again":
                await games.again(game)
            case other:
                raise BadUsage(f"There is nothing called {other!r} to do in a game.", hint="Use its buttons.")
    except FlyballError as error:
        return await _shown(request, game, str(error))
    if "hx-request" not in request.headers:
        return RedirectResponse(f"/games/play/{game.id}{_query(_picked(request))}", status_code=303)
    return await _shown(request, game)


def _picked(request: Request) -> SpotPath:
    """Return the spots that a request names as picked for the next move."""
    return tuple(part for part in request.query_params.get("pick", "")[:MOST_LETTERS].split(",") if part)


def _query(picked: SpotPath) -> str:
    """Return the end of an address that keeps spots picked."""
    return f"?pick={quote(','.join(picked))}" if picked else ""


def _number(fields: dict[str, str], name: str) -> int:
    number = whole_number(fields.get(name, ""))
    if number is None:
        raise BadUsage(f"{name} is {fields.get(name, '')!r}, no number. No move was played.", hint="Move again.")
    return number


def _games(request: Request) -> PlayedGames:
    games: PlayedGames = request.app.state.played
    return games


def _new_game(request: Request, asked: GameRequest) -> PlayedGame:
    """Return the game that a form asks for. Raises ``BadUsage`` or another ``FlyballError``."""
    feed = feed_of(request)
    config = feed.place.config(asked.config)
    check_playable(config)
    check_player(config, asked.against)
    seats = {whole_number(part.strip()) for part in asked.seat.split(",")}
    if not seats < set(range(config.players)):
        raise BadUsage(
            f"Your seat is {asked.seat!r}: seats of {config.key} are 0 to {config.players - 1}, and the opponent needs "
            "one, too.",
            hint="Write one number, or several with commas between.",
        )
    names = tuple(PERSON if seat in seats else asked.against for seat in range(config.players))
    full = tuple(PERSON if seat in seats else pinned(feed, config.key, asked.against) for seat in range(config.players))
    seed = asked.seed or derive_seed(0, boot_id(), SystemClock().now().isoformat())
    spec = {**feed.place.arguments, "config": config.key, "seed": seed, "players": full}
    return PlayedGame(feed.place, validated(PlaySpec, spec), names)


async def _shown(request: Request, game: PlayedGame, problem: str = "") -> Response:
    """Show a game, with what went wrong with the request."""
    await _games(request).settle(game, ANSWER_SECONDS)
    picked = _picked(request)

    def shown() -> Response:
        thinking = game.opinion is not None and not game.opinion.over  # before the opinion, which may come meanwhile
        opinion = None if thinking else game.shown_opinion()
        values: dict[str, Any] = {"game": game, "opinion": opinion, "thinking": thinking}
        values |= {"after": len(game.session.actions), "picks": _query(picked)}
        view = play_view(game, picked, opinion)
        return _answer(request, problem=problem, view=view, status_code=409 if problem else 200, **values)

    async with game.lock:
        return await asyncio.to_thread(shown)


def _answer(request: Request, *, status_code: int, view: object, **values: Any) -> Response:
    """Return the page, or for htmx the part, which it does not show if the status is an error's."""
    is_part, game = "hx-request" in request.headers, values.get("game")
    return render(
        request,
        "play_part.html" if is_part else "play.html",
        status_code=200 if is_part else status_code,
        view=view,
        here=f"/games/play/{quote(request.path_params['id'])}",
        key="" if game is None else game.session.config.key,
        **values,
    )


ROUTES = (
    Route("/games/play", begin, methods=["POST"]),
    Route("/games/play/{id}", show),
    Route("/games/play/{id}/{what}", act, methods=["POST"]),
)
