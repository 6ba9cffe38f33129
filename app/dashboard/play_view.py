"""A person's game as the page shows it: only what the person's seat sees."""

import re
from dataclasses import dataclass

from markupsafe import Markup

from flyball.app.api.playing import PERSON, Opinion
from flyball.app.core import is_model, split_search
from flyball.app.dashboard.boards import counts, draw, side_names
from flyball.app.dashboard.boards.spots import Spot, SpotPath, spots_of
from flyball.app.dashboard.playing import PlayedGame
from flyball.app.dashboard.watched import outcome, player_name
from flyball.app.games.hearts.cards import SEATS
from flyball.app.games.hearts.play import PASSED
from flyball.app.games.positions import NOBODY, HeartsPosition, Position, spectator_of
from flyball.app.games.seat_view import seen_by, text_for

FEW = 24
"""Most spots that are marked on the board; more marks would hide the position."""

COLUMN = 4.0
"""Height of a spot by its width from which it is a column, whose cells need no mark."""

LISTED = 12
"""Latest moves that are listed."""


@dataclass(frozen=True, slots=True)
class PlayView:
    """The content of the page.

    Attributes:
        board: the drawing.
        view_box: of the drawing, for the buttons on it.
        on_board: buttons on the drawing.
        below: buttons that have no place on it.
        marked: whether the buttons on the drawing are marked.
        seats: name and player of each seat.
        mover: name of the seat to move; empty once the game is over.
        how: how to make a move; empty if no person is to move.
        outcome: how the game ended; empty before.
        counts: figures of the position.
        news: what happened since the person's last move.
        moves: the latest moves.
        has_model: whether somebody can be asked for an opinion.
        network: text and probability of the network's most probable actions in an opinion.
        searched: text, visits, value and probability of the search's most visited actions in an opinion.
    """

    board: Markup
    view_box: str
    on_board: tuple[Spot, ...]
    below: tuple[Spot, ...]
    marked: bool
    seats: tuple[tuple[str, str], ...]
    mover: str
    how: str
    outcome: str
    counts: str
    news: tuple[str, ...]
    moves: tuple[tuple[int, str], ...]
    has_model: bool
    network: tuple[tuple[str, float], ...]
    searched: tuple[tuple[str, int, float, float], ...]


def play_view(game: PlayedGame, picked: SpotPath, opinion: Opinion | None) -> PlayView:
    """Return what a person sees of a game. ``picked`` are the spots picked for the next move."""
    config, standing = game.session.config, game.standing
    spectator, sides, seat = spectator_of(config), side_names(config), _viewer(game)
    position = seen_by(spectator.position(standing.history), seat)
    legal = standing.legal if game.is_persons_turn else ()
    texts = dict(zip(legal, spectator.names(standing.history, legal), strict=True)) if legal else {}
    spots = spots_of(position, seat, texts, picked)
    board = draw(position)
    moves = [
        (ply.played, f"{sides[ply.mover]} {text_for(ply, seat)}")
        for ply in spectator.plies(standing.history)
        if ply.mover != NOBODY
    ]

    def named(actions: tuple[int, ...]) -> list[str]:
        return spectator.names(standing.history, actions) if actions else []

    network = opinion.top if opinion else ()
    searched = opinion.searched if opinion else ()
    return PlayView(
        board=Markup(board),  # noqa: S704 - the drawings escape what they insert
        view_box=_VIEW_BOX.findall(board)[0],
        on_board=tuple(spot for spot in spots if spot.box is not None),
        below=tuple(spot for spot in spots if spot.box is None),
        marked=len(spots) <= FEW and not any(spot.box and spot.box[3] > COLUMN * spot.box[2] for spot in spots),
        seats=tuple(zip(sides, map(_name, game.asked, game.players), strict=True)),
        mover="" if game.over else sides[standing.seat],
        how=_how(position, spots) if texts else "",
        outcome=outcome(standing.returns, sides, truncated=standing.truncated) if game.over else "",
        counts=counts(position),
        news=tuple(text for played, text in moves if played > game.seen),
        moves=tuple((number, text) for number, (_, text) in enumerate(moves, start=1))[-LISTED:],
        has_model=any(is_model(split_search(player)[0]) for player in game.players),
        network=tuple(zip(named(tuple(a for a, _ in network)), (share for _, share in network), strict=True)),
        searched=tuple(
            (text, move.visits, round(move.value, 2) + 0.0, move.probability)  # no -0.00
            for text, move in zip(named(tuple(move.action for move in searched)), searched, strict=True)
        ),
    )


_VIEW_BOX = re.compile(r'viewBox="([^"]+)"')


def _viewer(game: PlayedGame) -> int:
    """Return the seat whose view is shown: the person's that is to move, otherwise the person's first."""
    seats = [seat for seat, player in enumerate(game.players) if player == PERSON]
    return game.standing.seat if game.standing.seat in seats else seats[0]


def _name(asked: str, full: str) -> str:
    return "you" if asked == PERSON else player_name(asked, full)


def _how(position: Position, spots: list[Spot]) -> str:
    """Return how to make a move, in words."""
    if isinstance(position, HeartsPosition):
        chosen = sum(map(len, position.passed))
        passing = position.passing != "nobody" and chosen < SEATS * PASSED
        return f"Choose a card to pass: number {chosen % PASSED + 1} of {PASSED}." if passing else "Choose a card."
    if picked := next((spot.name for spot in spots if spot.picked), ""):
        return f"{picked} is picked. Choose where it goes, or pick another."
    return "Pick a piece." if any(spot.picks for spot in spots) else "Choose where to play."
