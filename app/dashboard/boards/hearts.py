"""Hearts: four hands around a table, with the trick in the middle."""

from flyball.app.dashboard.boards.svg import Box, box, drawing, label, shift, tag, words
from flyball.app.games.hearts.cards import DIAMONDS, HEARTS, RANKS, SEATS
from flyball.app.games.positions import FACE_DOWN, HeartsPosition, card_name

WIDTH, HEIGHT = 540.0, 560.0
CARD_WIDTH, CARD_HEIGHT = 52.0, 76.0
PITCH, PITCH_AT_SIDES = 38.0, 26.0
"""Distance of two cards of a hand."""

PLACES = ((WIDTH / 2, HEIGHT - 54), (92.0, HEIGHT / 2), (WIDTH / 2, 54.0), (WIDTH - 92, HEIGHT / 2))
"""Middles of the hands, clockwise from the bottom, where the viewer sits, or else the first seat."""
TRICK = ((0, 58), (-54, 0), (0, -58), (54, 0))
"""Position of each place's card of the trick, from the middle."""
IN_A_ROW = 5
"""Cards in each row of a hand at the sides."""


def hearts(position: HeartsPosition) -> str:
    """Draw the hands, openly but for cards that the viewer does not see, the cards of the trick, and the points."""
    parts = [box(0, 0, WIDTH, HEIGHT, "felt", 18)]
    for seat in range(SEATS):
        parts += _hand(seat, position)
    for seat, card in position.trick:
        right, down = TRICK[_place(position, seat)]
        taken = " taken" if seat == position.taker else ""
        parts.append(_card(WIDTH / 2 + right, HEIGHT / 2 + down, card, f"card{taken}"))
    if not position.trick and position.passing != "nobody":
        ways = {"left": "to the left", "right": "to the right", "across": "across"}
        parts.append(label(f"Cards are passed {ways[position.passing]}", WIDTH / 2, HEIGHT / 2, 18, "on-felt"))
    return drawing(WIDTH, HEIGHT, "Hearts", _text(position), *parts)


def card_box(position: HeartsPosition, seat: int, name: str) -> Box:
    """Return left, top, width and height of the part of a seat's card that no other card covers."""
    cards = _cards(position, seat)
    number = next(k for k, (_, _, card) in enumerate(cards) if card_name(card) == name)
    x, y, _ = cards[number]
    width = CARD_WIDTH if number == len(cards) - 1 else PITCH
    return x - CARD_WIDTH / 2, y - CARD_HEIGHT / 2, width, CARD_HEIGHT


def _place(position: HeartsPosition, seat: int) -> int:
    return (seat - (position.viewer or 0)) % SEATS


def _cards(position: HeartsPosition, seat: int) -> list[tuple[float, float, int]]:
    """Return the middle of each card of a hand, and the card. A hand is in one row, but at the sides in several."""
    held, place = position.hands[seat], _place(position, seat)
    x, y = PLACES[place]
    pitch, in_a_row = (PITCH_AT_SIDES, IN_A_ROW) if place % 2 else (PITCH, RANKS)
    rows = [held[first : first + in_a_row] for first in range(0, len(held), in_a_row)]
    cards = []
    for number, row in enumerate(rows):
        down = (number - (len(rows) - 1) / 2) * CARD_HEIGHT * 0.56
        left = x - (min(len(held), in_a_row) - 1) / 2 * pitch
        cards += [(left + k * pitch, y + down, card) for k, card in enumerate(row)]
    return cards


def _hand(seat: int, position: HeartsPosition) -> list[str]:
    """Return a hand with the seat's points."""
    parts = [_card(x, y, card, "card") for x, y, card in _cards(position, seat)]
    points, place = position.points[seat], _place(position, seat)
    score = f"{'you' if seat == position.viewer else f'seat {seat}'}: {points} point{'s' * (points != 1)}"
    if any(position.scores):
        score += f" + {position.scores[seat]}"
    above = (-CARD_HEIGHT / 2 - 14, -CARD_HEIGHT - 18, CARD_HEIGHT / 2 + 14, -CARD_HEIGHT - 18)[place]
    x, y = PLACES[place]
    parts.append(label(score, x, y + above, 16, "on-felt"))
    return parts


def _card(x: float, y: float, card: int, class_: str) -> str:
    if card == FACE_DOWN:
        back = box(-CARD_WIDTH / 2 + 5, -CARD_HEIGHT / 2 + 5, CARD_WIDTH - 10, CARD_HEIGHT - 10, "card-back", 3)
        return shift(x, y, box(-CARD_WIDTH / 2, -CARD_HEIGHT / 2, CARD_WIDTH, CARD_HEIGHT, class_, 5), back)
    colour = "red" if card // RANKS in (DIAMONDS, HEARTS) else "black"
    name = card_name(card)
    left, top = -CARD_WIDTH / 2, -CARD_HEIGHT / 2
    corner = [
        tag("text", words(text), x=left + 5, y=top + down, font_size=17, class_=f"card-{colour}")
        for text, down in ((name[:-1], 18), (name[-1], 36))
    ]
    return shift(
        x,
        y,
        box(left, top, CARD_WIDTH, CARD_HEIGHT, class_, 5),
        *corner,
        label(name[-1], 8, 12, 32, f"card-{colour}"),
    )


def _text(position: HeartsPosition) -> str:
    hands = [f"Seat {k} holds {_held(hand)}." for k, hand in enumerate(position.hands)]
    trick = " ".join(f"{card_name(card)} by seat {seat}," for seat, card in position.trick).rstrip(",")
    taken = "" if position.taker is None else f" Seat {position.taker} takes it."
    points = ", ".join(map(str, position.points))
    return " ".join([*hands, f"Trick: {trick or 'none'}.{taken}", f"Points: {points}."])


def _held(hand: tuple[int, ...]) -> str:
    if FACE_DOWN in hand:
        return f"{len(hand)} cards"
    return " ".join(map(card_name, hand)) or "nothing"
