"""Hearts: four hands around a table, with the trick in the middle."""

from app.dashboard.boards.svg import box, drawing, label, shift, tag, words
from app.games.hearts.cards import DIAMONDS, HEARTS, RANKS
from app.games.positions import HeartsPosition, card_name

WIDTH, HEIGHT = 540.0, 560.0
CARD_WIDTH, CARD_HEIGHT = 52.0, 76.0
PITCH, PITCH_AT_SIDES = 34.0, 26.0
"""Distance of two cards of a hand."""

PLACES = ((WIDTH / 2, HEIGHT - 54), (92.0, HEIGHT / 2), (WIDTH / 2, 54.0), (WIDTH - 92, HEIGHT / 2))
"""Middles of the hands, clockwise from the first seat at the bottom."""
TRICK = ((0, 58), (-54, 0), (0, -58), (54, 0))
"""Position of each seat's card of the trick, from the middle."""
IN_A_ROW = 5
"""Cards in each row of a hand at the sides."""


def hearts(position: HeartsPosition) -> str:
    """Draw all hands openly, the cards of the trick, and the points."""
    parts = [box(0, 0, WIDTH, HEIGHT, "felt", 18)]
    for seat, (x, y) in enumerate(PLACES):
        parts += _hand(seat, x, y, position)
    for seat, card in position.trick:
        right, down = TRICK[seat]
        taken = " taken" if seat == position.taker else ""
        parts.append(_card(WIDTH / 2 + right, HEIGHT / 2 + down, card, f"card{taken}"))
    if not position.trick and position.passing != "nobody":
        ways = {"left": "to the left", "right": "to the right", "across": "across"}
        parts.append(label(f"Cards are passed {ways[position.passing]}", WIDTH / 2, HEIGHT / 2, 18, "on-felt"))
    return drawing(WIDTH, HEIGHT, "Hearts", _text(position), *parts)


def _hand(seat: int, x: float, y: float, position: HeartsPosition) -> list[str]:
    """Return a hand with the seat's points. A hand is in one row, but at the sides in several."""
    held, at_side = position.hands[seat], seat % 2 == 1
    pitch, in_a_row = (PITCH_AT_SIDES, IN_A_ROW) if at_side else (PITCH, RANKS)
    rows = [held[first : first + in_a_row] for first in range(0, len(held), in_a_row)]
    parts = []
    for number, cards in enumerate(rows):
        down = (number - (len(rows) - 1) / 2) * CARD_HEIGHT * 0.56
        left = x - (min(len(held), in_a_row) - 1) / 2 * pitch
        parts += [_card(left + k * pitch, y + down, card, "card") for k, card in enumerate(cards)]
    points = position.points[seat]
    score = f"seat {seat}: {points} point{'s' * (points != 1)}"
    if any(position.scores):
        score += f" + {position.scores[seat]}"
    above = (-CARD_HEIGHT / 2 - 14, -CARD_HEIGHT - 18, CARD_HEIGHT / 2 + 14, -CARD_HEIGHT - 18)[seat]
    parts.append(label(score, x, y + above, 16, "on-felt"))
    return parts


def _card(x: float, y: float, card: int, class_: str) -> str:
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
    hands = [f"Seat {k} holds {' '.join(map(card_name, hand)) or 'nothing'}." for k, hand in enumerate(position.hands)]
    trick = " ".join(f"{card_name(card)} by seat {seat}," for seat, card in position.trick).rstrip(",")
    taken = "" if position.taker is None else f" Seat {position.taker} takes it."
    points = ", ".join(map(str, position.points))
    return " ".join([*hands, f"Trick: {trick or 'none'}.{taken}", f"Points: {points}."])
