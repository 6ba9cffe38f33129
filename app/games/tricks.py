"""Codecs of OpenSpiel's trick-taking games, Oh Hell and Hearts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flyball.app.games.codec import Codec, identical
from flyball.app.games.hearts import encode as layout
from flyball.app.games.hearts.cards import CARDS, FIRST_HEART, POINTS, QUEEN_OF_SPADES, RANKS, SEATS, SUITS
from flyball.app.games.hearts.play import DIRECTION_ORDER
from flyball.app.games.table import Floats, Indices, Mask, Seats


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """M cards played in K positions, sorted by position, then by order of play."""

    row: Indices  # [M] the position, 0 … K - 1
    card: Indices  # [M] suit x 13 + rank
    seat: Indices  # [M] the player, as the number of seats to the left of the observer
    order: Indices  # [M] index of the card among those played in its position
    led: Indices  # [M] the suit led in the card's trick
    current: Mask  # [M] whether the card lies in the current trick
    count: Indices  # [K] cards played in each position


def read_tricks(block: Floats, seats: Seats, players: int, cards: Indices) -> Played:
    """Read the played cards from information states.

    Players are numbered relative to the observers ``seats`` [K].

    ``block`` is [K, tricks x (2 x players - 1) x 52]; each trick is written from its leader's seat onward. ``cards``
    [52] gives our number for each of OpenSpiel's cards.
    """
    row, index = np.divmod(np.flatnonzero(block != 0), block.shape[1])  # ten times as fast as on floats
    seat, card = np.divmod(index, CARDS)
    seat %= 2 * players - 1
    count = np.bincount(row, minlength=len(block))
    order = np.arange(len(row)) - (np.cumsum(count) - count)[row]
    ours = cards[card]
    led = ours[np.arange(len(row)) - order % players] // RANKS
    current = order >= (count - count % players)[row]
    return Played(row, ours, (seat - seats.astype(np.int64)[row]) % players, order, led, current, count)


def relative(values: Floats, seats: Seats) -> Floats:
    """Rotate per-seat values [K, P, ...] to put the observers' own first."""
    players = values.shape[1]
    turned = (np.arange(players)[None, :] + seats[:, None]) % players
    own_first: Floats = values[np.arange(len(values))[:, None], turned]
    return own_first


_OH_HELL_CARDS = np.arange(CARDS) % SUITS * RANKS + np.arange(CARDS) // SUITS  # our numbers of OpenSpiel's cards


def oh_hell(players: int = 3) -> Codec:
    """Encode Oh Hell.

    Actions are OpenSpiel's 52 cards, then bids of 0 and up.

    Features and their sizes, for at most T tricks and P players in the order me, left, …: tricks in this hand T;
    dealer P; trump card 52 and suit 4; own hand 52; bids P x (none, 0 … T); tricks won, as P thermometers of T; cards
    seen 52; the current trick's cards by other player (P - 1) x 52; led suit 4.
    """
    tricks = (CARDS - 1) // players
    bid, won = players * (tricks + 2), players * tricks
    # First features of the parts in OpenSpiel's information state (theirs) and in the observation (ours).
    theirs = np.cumsum((0, tricks, players, CARDS, CARDS, CARDS, bid, won))
    ours = np.cumsum((0, tricks, players, CARDS, SUITS, CARDS, bid, won, CARDS, (players - 1) * CARDS, SUITS))
    cards = np.argsort(_OH_HELL_CARDS)

    def encode(raw: Floats, seats: Seats) -> NDArray[np.uint8]:
        k, (count, dealer, trump, _, hand, bids, wins, record) = len(raw), theirs
        trumps = raw[:, trump + cards]
        parts = (
            raw[:, count:dealer],
            relative(raw[:, dealer:trump], seats),
            trumps,
            trumps.reshape(k, SUITS, RANKS).any(axis=2),
            raw[:, hand + cards],
            relative(raw[:, bids:wins].reshape(k, players, tricks + 2), seats).reshape(k, -1),
            relative(raw[:, wins:record].reshape(k, players, tricks), seats).reshape(k, -1),
        )
        out = np.zeros((k, ours[-1]), dtype=np.uint8)
        seen_cards, table, led = ours[7:10]
        out[:, :seen_cards] = np.concatenate(parts, axis=1)
        played = read_tricks(raw[:, record:], seats, players, _OH_HELL_CARDS)
        out[played.row, seen_cards + played.card] = 1
        out[played.row[played.current], led + played.led[played.current]] = 1
        others = played.current & (played.seat > 0)  # the seat to move has no card in the trick
        out[played.row[others], table + (played.seat[others] - 1) * CARDS + played.card[others]] = 1
        return out

    return Codec(int(ours[-1]), encode, identical(players, CARDS + tricks + 1), uniform_chance=True)


_HEARTS_SUITS = np.array([0, 1, 3, 2])  # OpenSpiel orders clubs, diamonds, hearts, spades; we put hearts last
_HEARTS_CARDS = _HEARTS_SUITS[np.arange(CARDS) % SUITS] * RANKS + np.arange(CARDS) // SUITS
_RECEIVED, _HAND, _POINTS, _RECORD = 108, 160, 212, 356  # first features of parts of the information state
_POINT_STEPS, _POINT_OFFSET = 36, 10  # points are a thermometer of 36 steps that starts at -10


def hearts(qs_breaks_hearts: bool = True) -> Codec:  # noqa: FBT001, FBT002  # a parameter of the game
    """Encode OpenSpiel's Hearts as our own, with our card numbers and a moon worth 1.

    See ``flyball.app.games.hearts.encode``.
    """
    cards, also_break = np.argsort(_HEARTS_CARDS), [QUEEN_OF_SPADES] if qs_breaks_hearts else []

    def encode(raw: Floats, seats: Seats) -> Floats:
        played = read_tricks(raw[:, _RECORD:], seats, SEATS, _HEARTS_CARDS)
        row, card, age = played.row, played.card, played.count[played.row] - 1 - played.order
        out = np.zeros((len(raw), layout.SIZE), dtype=np.float32)

        def write_cards(which: Mask, start: int, position: Indices) -> None:
            suit, rank = np.divmod(card[which], RANKS)
            begin = start + position[which] * layout.CARD
            out[row[which], begin + suit] = out[row[which], begin + SUITS + rank] = 1

        out[:, : layout.SEEN] = raw[:, _HAND + cards]
        out[row, layout.SEEN + card] = 1
        out[row[played.current], layout.LED + played.led[played.current]] = 1
        write_cards(played.current, layout.TRICK, played.order % SEATS)
        out[:, layout.IN_TRICK] = out[:, layout.POSITION] = played.count % SEATS / SEATS
        points = raw[:, _POINTS:_RECORD].reshape(-1, SEATS, _POINT_STEPS).sum(axis=2) - _POINT_OFFSET
        out[:, layout.SCORES : layout.BROKEN] = relative(points, seats) / layout.SCORE_UNIT
        out[row[(card >= FIRST_HEART) | np.isin(card, also_break)], layout.BROKEN] = 1
        out[:, layout.TRICKS] = played.count // SEATS / RANKS
        received = raw[:, _RECEIVED:_HAND].any(axis=1)
        out[:, layout.PASSING] = (played.count == 0) & ~received & (raw[:, 0] == 0)
        out[:, layout.DIRECTION : layout.VOIDS] = raw[:, list(DIRECTION_ORDER)]
        void = (played.seat > 0) & (card // RANKS != played.led)
        out[row[void], layout.VOIDS + (played.seat[void] - 1) * SUITS + played.led[void]] = 1
        write_cards(age < SEATS, layout.LAST, age)
        return out

    return Codec(layout.SIZE, encode, np.tile(cards, (SEATS, 1)), kind=np.float32, scale=POINTS, uniform_chance=True)
