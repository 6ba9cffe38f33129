"""The normal bot, which weighs keeping each card against playing it.

It plays the card with the largest difference between the danger of keeping it and the cost of playing it now. The cost
is the chance that the card takes the trick, times the trick's points and those that later players may add. The danger
of keeping it grows with the lower cards that others still have, and shrinks with the seat's own lower cards, its
guards. So the bot ducks with the highest losing card, discards the queen and then dangerous cards, takes clean tricks
early and empties short suits. It gives no points to a seat that may be shooting the moon, and takes a trick from that
seat if that is cheap. It shoots its own moon only when nothing can stop it.

The bot reads only its own hand, the played cards, the points and the shown voids, so other seats' hidden cards cannot
matter (``tests/unit/test_hearts_bots.py``).
"""

from typing import NamedTuple

from flyball.app.core.kernels import kernel
from flyball.app.games.hearts import cards
from flyball.app.games.hearts.cards import (
    CARDS,
    HEARTS,
    QUEEN_OF_SPADES,
    RANKS,
    SEATS,
    SPADES,
    SUIT,
    count,
    highest,
    points_of,
)
from flyball.app.games.hearts.play import Game, is_passing
from flyball.app.games.hearts.rules import CLEAN_FIRST_TRICK

# Tuned by the cross-entropy method: 32 variants a generation, each against three of the best so far. The last three are
# set by hand, for fewer moons among four such bots, because a seat that stops a moon pays for it alone.
_OVERTAKE = 0.588  # chance that a later player with higher cards of the suit plays one
_DUMP = 2.774  # points that a void seat is expected to discard on the trick
_DUMP_QUEEN = 8.454  # expected further points while the queen is out
_TEMPO = 0.17  # cost of taking a trick, because the taker leads next
_DANGER = 1.67  # of a card that beats all others of its suit
_GUARD = 0.135  # weight of each lower card of the suit in reducing the danger
_DANGER_HEARTS = 1.892  # factor on the danger of hearts
_DANGER_ABOVE_QUEEN = 2.826  # of king and ace of spades while the queen is out
_DANGER_QUEEN = 2.82
_SHORT = 0.811  # worth of making a suit shorter
_GIFT = 0.277  # worth of a point that another seat takes
_FLUSH = 7.826  # worth of leading low spades to draw the queen
_PASS_QUEEN = 24.174
_PASS_HIGH_SPADE = 20.629
_PASS_HEART = 1.053
_PASS_SHORT = 3.115
_SUSPECT = 14  # points; a seat that alone has taken this many may be shooting the moon
_ROB = 2.0  # worth of taking a trick with points while a seat may be shooting
_ALARM = 4.0  # cost of giving points to a seat that may be shooting

_EVEN = 1e-3
"""Weight of a card's number, which breaks ties. Among equally dangerous cards, the highest is played first."""


class View(NamedTuple):
    """Facts about a trick that the seat to move knows."""

    seat: int  # the seat to move
    hand: int  # its set of cards
    out: int  # the cards that others still have
    led: int  # the suit of the trick, -1 when leading
    best: int  # the card that takes the trick so far, -1 when leading
    taker: int  # the seat that played ``best``, -1 when leading
    points: int  # in the trick
    later: int  # number of seats that play after this one
    clean: bool  # no points may be played to this trick
    threat: int  # another seat that has taken all points, if at least ``_SUSPECT``; else -1


@kernel
def normal_choice(game: Game, choices: int) -> int:
    """Return the card of ``choices`` that the bot passes or plays."""
    passing = is_passing(game)
    view = look(game)
    shooting = not passing and cannot_be_stopped(game, view)
    best, chosen = -1e9, -1
    for card in range(CARDS):
        if choices >> card & 1:
            if passing:
                worth = _pass_worth(view.hand, card)
            elif shooting:
                worth = 1.0 * (card % RANKS)
            else:
                worth = _play_worth(game, view, card)
            if worth > best:
                best, chosen = worth, card
    return chosen


@kernel
def look(game: Game) -> View:
    """Return the view of the seat to move."""
    seat, plays, played = int(game["mover"]), game["plays"], int(game["cards_played"])
    first = played - played % SEATS
    led, best, taker, points = -1, -1, -1, 0
    for k in range(first, played):
        card = int(plays[k])
        points += points_of(card)
        if k == first:
            led = card // RANKS
        if card // RANKS == led and card > best:
            best, taker = card, (game["leader"] + k - first) % SEATS
    hand: int = game["hand"][seat]
    clean = played < SEATS and game["options"] & CLEAN_FIRST_TRICK != 0
    later = SEATS - 1 - (played - first)
    return View(seat, hand, cards.ALL & ~hand & ~game["played"], led, best, taker, points, later, clean, _threat(game))


@kernel
def _threat(game: Game) -> int:
    total, most = 0, 0
    for seat in range(SEATS):
        total += game["points"][seat]
        if game["points"][seat] > game["points"][most]:
            most = seat
    return most if total >= _SUSPECT and game["points"][most] == total and most != game["mover"] else -1


@kernel
def cannot_be_stopped(game: Game, view: View) -> bool:
    """Return whether the seat to move shoots the moon however the other cards lie."""
    if view.led >= 0 and highest(1 << view.best | view.hand & SUIT << view.led * RANKS) == view.best:
        return False
    for other in range(SEATS):
        if other != view.seat and game["points"][other] > 0:
            return False
    for suit in range(cards.SUITS):
        mine, theirs = view.hand & SUIT << suit * RANKS, view.out & SUIT << suit * RANKS
        masters = count(mine & ~((1 << highest(theirs)) - 1)) if theirs else count(mine)
        if masters < count(mine) and masters < count(theirs):
            return False
    return True


@kernel
def _pass_worth(hand: int, card: int) -> float:
    suit, rank = card // RANKS, card % RANKS
    length = count(hand & SUIT << suit * RANKS)
    guards = count(hand & SUIT << suit * RANKS & (1 << QUEEN_OF_SPADES) - 1)
    if suit == SPADES:
        if card < QUEEN_OF_SPADES:
            return rank - 10.0
        return (_PASS_QUEEN if card == QUEEN_OF_SPADES else _PASS_HIGH_SPADE) - 4.0 * guards
    if suit == HEARTS:
        return rank * _PASS_HEART
    return rank + _PASS_SHORT * (3 - length)


@kernel
def _play_worth(game: Game, view: View, card: int) -> float:
    """Return the danger that playing a card removes, less the expected cost of playing it."""
    suit, points = card // RANKS, points_of(card)
    takes, added = 0.0, 0.0
    if card > view.best and (view.led < 0 or suit == view.led):
        takes, added = _taking(game, view, card)
    worth = _danger(view, card) - takes * (view.points + points + added + _TEMPO)
    giving = _GIFT * points
    if view.threat >= 0:
        worth += _ROB * takes * (view.points + points > 0)
        giving = -_ALARM if points and (view.taker == view.threat or view.led < 0) else giving
    if view.led < 0 and suit == SPADES and card < QUEEN_OF_SPADES and view.out >> QUEEN_OF_SPADES & 1:
        worth += _FLUSH
    return worth + giving * (1 - takes)


@kernel
def _taking(game: Game, view: View, card: int) -> tuple[float, float]:
    """Return the chance that the best card so far takes the trick, and the points expected from later players."""
    suit = card // RANKS
    outside = view.out & SUIT << suit * RANKS
    length = count(outside)
    above = count(outside >> card) / length if length else 0.0
    holders = 0
    for k in range(1, SEATS):
        holders += 1 - (game["voids"][(view.seat + k) % SEATS] >> suit & 1)
    queen = view.out >> QUEEN_OF_SPADES & 1
    under_queen = 13.0 / max(1, holders) * (suit == SPADES and queen and card > QUEEN_OF_SPADES)
    takes, added = 1.0, 0.0
    for k in range(1, view.later + 1):
        none = 1.0
        if holders and not game["voids"][(view.seat + k) % SEATS] >> suit & 1:
            none = (1 - 1.0 / holders) ** length
        takes *= 1 - (1 - none) * _OVERTAKE * above
        added += (1 - none) * ((suit == HEARTS) + under_queen)
        if not view.clean:
            added += none * (_DUMP + _DUMP_QUEEN * queen)
    return takes, added


@kernel
def _danger(view: View, card: int) -> float:
    """Return the expected cost of keeping a card."""
    suit = card // RANKS
    mine, theirs = view.hand & SUIT << suit * RANKS, view.out & SUIT << suit * RANKS
    below = (1 << card) - 1
    length = count(theirs)
    guards = count(mine & below & (1 << highest(theirs)) - 1) if length else 0
    danger = _DANGER * (count(theirs & below) / length if length else 0.5)
    if suit == HEARTS:
        danger *= _DANGER_HEARTS
    if card == QUEEN_OF_SPADES:
        danger += _DANGER_QUEEN
    elif suit == SPADES and card > QUEEN_OF_SPADES and view.out >> QUEEN_OF_SPADES & 1:
        danger += _DANGER_ABOVE_QUEEN
    shorter = _SHORT / (guards + count(mine))
    return danger / (1 + _GUARD * guards) + shorter + _EVEN * card
