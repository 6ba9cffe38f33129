"""The card games' observations, rebuilt here from nothing but the cards played."""

from itertools import count

import numpy as np
import pytest

from flyball.app.config import GAMES
from flyball.app.games import FINISHED, open_table

OURS = [[0, 1, 3, 2][card % 4] * 13 + card // 4 for card in range(52)]  # Hearts: spades before hearts
QUEEN = 36


def random_hand(key, seed):
    """Yield the table before every decision of one game."""
    table = open_table(GAMES[key], 1)
    table.reset(np.array([0]), [seed])
    rng = np.random.default_rng(seed)
    while table.seats()[0] != FINISHED:
        yield table
        mask = table.observe(np.array([0]))[1][0]
        table.step(np.array([0]), np.array([rng.choice(np.flatnonzero(mask))], dtype=np.int32))


def deal(history):
    """Return Hearts hands after passing, the direction, and the cards played (``None`` before passing ends)."""
    direction, dealt, rest = history[0], history[1:53], history[53:]
    hands = [{OURS[card] for card in dealt[seat::4]} for seat in range(4)]
    if not direction:
        return hands, direction, rest
    if len(rest) < 12:
        for k, card in enumerate(rest):
            hands[k // 3].discard(OURS[card])
        return hands, direction, None
    passed = [{OURS[card] for card in rest[3 * seat : 3 * seat + 3]} for seat in range(4)]
    for seat in range(4):
        hands[seat] -= passed[seat]
        hands[(seat + direction) % 4] |= passed[seat]
    return hands, direction, rest[12:]


def follow(hands, cards):
    leader = next(seat for seat in range(4) if 0 in hands[seat])
    tricks, points = [], [0] * 4
    for start in range(0, len(cards), 4):
        trick = [OURS[card] for card in cards[start : start + 4]]
        tricks.append((leader, trick))
        if len(trick) == 4:
            best = max(range(4), key=lambda k: (trick[k] // 13 == trick[0] // 13, trick[k]))
            leader = (leader + best) % 4
            points[leader] += sum(card >= 39 for card in trick) + 13 * (QUEEN in trick)
    return tricks, points


def card_code(cards):
    code = np.zeros((4, 17))
    for k, card in enumerate(cards):
        code[k, card // 13] = code[k, 4 + card % 13] = 1
    return code.ravel()


def expected(seat, history):
    hands, direction, cards = deal(history)
    tricks, points = follow(hands, cards) if cards is not None else ([], [0] * 4)
    played = [card for _, trick in tricks for card in trick]
    current = tricks[-1][1] if tricks and len(tricks[-1][1]) < 4 else []
    multi_hot = np.zeros((2, 52))
    multi_hot[0, list(hands[seat] - set(played))] = 1
    multi_hot[1, played] = 1
    led, voids = np.zeros(4), np.zeros((4, 4))
    led[[card // 13 for card in current[:1]]] = 1
    for leader, trick in tricks:
        for k, card in enumerate(trick):
            voids[(leader + k - seat) % 4, trick[0] // 13] += card // 13 != trick[0] // 13
    way = np.zeros(4)
    way[{1: 0, 3: 1, 2: 2, 0: 3}[direction]] = 1
    broken = any(card >= 39 or card == QUEEN for card in played)
    return np.concatenate(
        [
            *multi_hot,
            led,
            card_code(current),
            [len(current) / 4, len(current) / 4, 0],
            [points[(seat + k) % 4] / 100 for k in range(4)],
            [broken, len(played) // 4 / 13, cards is None],
            way,
            (voids[1:] > 0).ravel(),
            card_code(played[::-1][:4]),
        ]
    )


DIRECTIONS = ("hold", "left", "across", "right")


def passed(direction: str) -> int:
    """Return the seed of a hand with passing in a direction."""
    first = (next(random_hand("hearts_4p", seed)).history(0)[0] for seed in count())
    return next(seed for seed, found in enumerate(first) if DIRECTIONS[found] == direction)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_hearts_features_are_what_the_seat_knows(direction: str) -> None:
    """This holds for passed cards, too, whichever way they went."""
    directions = set()
    for table in random_hand("hearts_4p", passed(direction)):
        obs, mask = table.observe(np.array([0]))
        assert obs.shape == (1, 270)
        np.testing.assert_allclose(obs[0], expected(int(table.seats()[0]), table.history(0)), atol=1e-6)
        assert (obs[0, :52] >= mask[0]).all()  # only own cards are legal
        directions.add(int(obs[0, 186:190].argmax()))
    assert len(directions) == 1


@pytest.mark.parametrize("seed", range(4))
def test_oh_hell_shows_hand_bids_and_tricks_from_my_side(seed: int) -> None:
    for table in random_hand("oh_hell_3p", seed):
        seat, history = int(table.seats()[0]), table.history(0)
        tricks, dealer = history[:2]
        dealt, trump, rest = history[2 : 2 + 3 * tricks], history[2 + 3 * tricks], history[3 + 3 * tricks :]
        ours = [card % 4 * 13 + card // 4 for card in range(52)]
        obs, _ = table.observe(np.array([0]))
        parts = np.split(obs[0], np.cumsum([17, 3, 52, 4, 52, 57, 51, 52, 104]))
        count, deals, trumps, suit, hand, bids, won, seen, on_table, led = parts
        played = [ours[card] for card in rest[3:]]
        assert np.flatnonzero(count).tolist() == [tricks - 1]
        assert np.flatnonzero(deals).tolist() == [(dealer - seat) % 3]
        assert np.flatnonzero(trumps).tolist() == [ours[trump]]
        assert np.flatnonzero(suit).tolist() == [ours[trump] // 13]
        assert set(np.flatnonzero(hand)) == {ours[card] for card in dealt[seat::3]} - set(played)
        bid_of = {(dealer + 1 + k - seat) % 3: bid - 52 for k, bid in enumerate(rest[:3])}
        assert np.flatnonzero(bids).tolist() == [p * 19 + bid_of.get(p, -1) + 1 for p in range(3)]
        assert won.sum() == len(played) // 3
        assert sorted(np.flatnonzero(seen)) == sorted(played)
        current = played[len(played) - len(played) % 3 :]
        places = range((-len(current)) % 3, 3)  # who played them, from my left round to my right
        shown = [(place - 1) * 52 + card for place, card in zip(places, current, strict=True)] if current else []
        assert np.flatnonzero(on_table).tolist() == shown
        assert np.flatnonzero(led).tolist() == [card // 13 for card in current[:1]]
