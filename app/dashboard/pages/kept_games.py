"""Kept games: those that people played, move by move, and their files."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.app.api.kept_games import check_rules, check_seats, kept_game, kept_text
from flyball.app.api.runs import RunLocation
from flyball.app.core import FlyballError, is_model, split_search
from flyball.app.dashboard.boards import side_names
from flyball.app.dashboard.layout import feed_of, render, whole_number
from flyball.app.dashboard.watched import kept_record, outcome, view_of
from flyball.app.status.summary import short


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A line of the list. ``time`` is None, and ``result`` says why, if the file cannot be read."""

    name: str
    time: datetime | None
    config: str
    players: str
    result: str


def kept_row(place: RunLocation, name: str) -> KeptRow:
    """Return a kept game's line of the list."""
    try:
        game = kept_game(place.folder, name)
        config = place.config(game.config)
        check_seats(game, config)
        sides = side_names(config)
        players = ", ".join(f"{side}: {_shown_name(player)}" for side, player in zip(sides, game.players, strict=True))
        result = outcome(game.returns, sides, truncated=game.truncated)
    except FlyballError as error:
        return KeptRow(name, None, "", "", str(error))
    return KeptRow(name, game.kept, game.config, players, result)


async def page(request: Request) -> Response:
    """Show a kept game, the beginning first."""
    return await asyncio.to_thread(_shown, request, "kept_game.html", 0)


async def part(request: Request) -> Response:
    """Show a ply of a kept game."""
    return await asyncio.to_thread(_shown, request, "games_part.html", None)


async def file(request: Request) -> Response:
    """Return a kept game's file."""
    name = request.path_params["name"]
    text = await asyncio.to_thread(kept_text, feed_of(request).place.folder, name)
    disposition = {"content-disposition": f'attachment; filename="{name}.json"'}
    return Response(text, media_type="application/json", headers=disposition)


def _shown(request: Request, template: str, usual: int | None) -> Response:
    place, name = feed_of(request).place, request.path_params["name"]
    game = kept_game(place.folder, name)
    config = place.config(game.config)
    check_rules(game, config)
    asked = request.query_params.get("ply", "")
    here, ply = f"/games/kept/{quote(name)}", whole_number(asked)
    values: dict[str, Any] = {"page": f"{here}?", "part": f"{here}/part?", "over": True, "error": None, "follow": False}
    names = tuple(map(_shown_name, game.players))
    view = view_of(config, kept_record(config, game), names, ply if asked else usual)
    return render(request, template, key=game.config, name=name, kept=game.kept, view=view, **values)


def _shown_name(player: str) -> str:
    """Return a player's name with the beginning of a model's hash."""
    model, positions = split_search(player)
    if not is_model(model):
        return player
    return short(model) if positions is None else f"{short(model)}+{positions}"


ROUTES = (
    Route("/games/kept/{name}", page),
    Route("/games/kept/{name}/part", part),
    Route("/games/kept/{name}/file", file),
)
