"""A person's game as a seed and its decisions, played to its end against the bots."""

import re
from pathlib import Path

import numpy as np
import pytest
from played_games import PLAYED

from flyball.app.api.play_job import answer
from flyball.app.api.playing import PERSON, Answer, Unplayable, check_playable
from flyball.app.api.watching import Unwatchable
from flyball.app.config import GAMES, GameConfig
from flyball.app.core import ConfigKey
from flyball.app.dashboard.boards import draw
from flyball.app.dashboard.boards.spots import Spot, spots_of
from flyball.app.games import FINISHED, IllegalAction
from flyball.app.games.positions import spectator_of
from flyball.app.games.seat_view import seen_by, text_for
from flyball.app.games.session import GameSession

LINES = ((0, 1), (1, 0), (1, 1), (1, -1))


def answered(folder: Path, session: GameSession, players: tuple[str, ...]) -> GameSession:
    """Let the bots play until a person is to move."""
    spec = {"run": str(folder), "config": session.config.key, "seed": session.seed, "players": players}
    result = Answer.model_validate(answer({**spec, "actions": session.actions}, lambda _: None))
    for decision in result.decisions:
        standing = session.standing()
        assert (decision.seat, decision.played) == (standing.seat, len(standing.history))
        session = session.after(decision.action)
    return session


def is_inside(spot: Spot, board: str) -> bool:
    width, height = map(float, re.findall(r'viewBox="0 0 (\S+) (\S+)"', board)[0])
    if spot.box is None:
        return True
    left, top, across, down = spot.box
    return left >= 0 and top >= 0 and left + across <= width and top + down <= height


def chosen(session: GameSession, rng: np.random.Generator) -> int:
    """Choose an action as a person does: spot by spot."""
    standing, spectator = session.standing(), spectator_of(session.config)
    position = seen_by(spectator.position(standing.history), standing.seat)
    texts = dict(zip(standing.legal, spectator.names(standing.history, standing.legal), strict=True))
    board, picked = draw(position), ()
    while True:
        spots = spots_of(position, standing.seat, texts, picked)
        assert all(is_inside(spot, board) for spot in spots)
        assert len({spot.name for spot in spots}) == len(spots)
        spot = spots[rng.integers(len(spots))]
        if spot.action is not None:
            return spot.action
        picked = spot.picks


@pytest.mark.parametrize("key", PLAYED)
def test_game_by_random_spots_ends_and_replays_alike(tmp_path: Path, key: str):
    config, rng = GAMES[ConfigKey(key)], np.random.default_rng(2)
    if config.max_moves:
        config = config.replace(max_moves=60)
        (tmp_path / "flyball.toml").write_text(f"[games.{key}]\nmax_moves = 60\n")
    check_playable(config)
    players = (PERSON, *["random"] * (config.players - 1))
    session = GameSession(config, seed=7)
    while (seat := session.standing().seat) != FINISHED:
        if players[seat] == PERSON:
            session = session.after(chosen(session, rng))
        else:
            session = answered(tmp_path, session, players)
    standing = session.standing()
    assert sum(standing.returns) == pytest.approx(0, abs=1e-5)
    assert standing == GameSession(config, 7, session.actions).standing()
    assert standing.legal == ()


def columns_of(actions: tuple[int, ...]) -> list[list[int]]:
    columns: list[list[int]] = [[] for _ in range(7)]
    for number, column in enumerate(actions):
        columns[column].append(number % 2)
    return columns


def has_four(actions: tuple[int, ...], seat: int) -> bool:
    """Return whether a seat has four in a row, by nothing of ours."""
    columns = columns_of(actions)
    own = {(c, r) for c, column in enumerate(columns) for r, owner in enumerate(column) if owner == seat}
    return any(all((c + k * x, r + k * y) in own for k in range(4)) for c, r in own for x, y in LINES)


@pytest.mark.parametrize("seed", range(5))
def test_connect_four_is_won_by_four_in_a_row(tmp_path: Path, seed: int):
    config, rng, players = GAMES[ConfigKey("connect_four_2p")], np.random.default_rng(seed), ("heuristic", PERSON)
    session = GameSession(config, seed)
    while (standing := session.standing()).seat != FINISHED:
        assert not any(has_four(session.actions, seat) for seat in (0, 1))
        is_person = players[standing.seat] == PERSON
        session = session.after(chosen(session, rng)) if is_person else answered(tmp_path, session, players)
    won = tuple(has_four(session.actions, seat) for seat in (0, 1))
    assert standing.returns == {(True, False): (1, -1), (False, True): (-1, 1), (False, False): (0, 0)}[won]


def test_illegal_action_is_refused_and_the_session_stays():
    session = GameSession(GAMES[ConfigKey("tic_tac_toe_2p")], 1).after(4)
    with pytest.raises(IllegalAction):
        session.after(4)
    assert session.standing().legal == (0, 1, 2, 3, 5, 6, 7, 8)


def test_seat_of_hearts_sees_its_own_cards_only():
    config = GAMES[ConfigKey("hearts_4p")]
    session = GameSession(config, 4)
    spectator = spectator_of(config)
    for _ in range(7):  # all passes of the first two seats, and one of the third
        session = session.after(session.standing().legal[0])
    history = session.standing().history
    everything = spectator.position(history)
    seen = seen_by(everything, 1)
    assert seen.hands[1] == everything.hands[1]
    assert seen.passed[1] == everything.passed[1]
    assert len(everything.passed[1]) == 3
    for seat in (0, 2, 3):
        assert set(seen.hands[seat]) | set(seen.passed[seat]) == {-1}
        assert len(seen.hands[seat]) == len(everything.hands[seat])
    passes = [ply for ply in spectator.plies(history) if ply.text.startswith("passes")]
    assert len(passes) == 7
    assert {text_for(ply, 1) for ply in passes if ply.mover != 1} == {"passes a card"}
    assert all(text_for(ply, 1) == ply.text for ply in passes if ply.mover == 1)


@pytest.mark.parametrize(
    ("config", "error", "what"),
    [
        (GAMES[ConfigKey("oh_hell_3p")], Unplayable, "not drawn"),
        (GAMES[ConfigKey("maedn_4p")], Unplayable, "not drawn"),
        (GAMES[ConfigKey("connect_four_text_2p")], Unplayable, "language models do not play"),
        (GAMES[ConfigKey("diplomacy_7p")], Unwatchable, "all powers move at once"),
    ],
)
def test_other_games_are_refused_with_the_reason(config: GameConfig, error: type[Exception], what: str):
    with pytest.raises(error, match=what):
        check_playable(config)


def test_promotion_in_shogi_is_chosen_last():
    config = GAMES[ConfigKey("shogi_2p")]
    spectator = spectator_of(config)
    position = spectator.position(GameSession(config, 0).standing().history)
    assert {spot.name: spot.picks for spot in spots_of(position, 0, {1: "2d2c", 2: "2d2c+", 3: "2d2b+"})} == {
        "2d": ("2d",)
    }
    spots = {spot.name: spot for spot in spots_of(position, 0, {1: "2d2c", 2: "2d2c+", 3: "2d2b+"}, ("2d",))}
    assert (spots["2b"].action, spots["2c"].picks, spots["2d"].picked) == (3, ("2d", "2c"), True)
    spots = {spot.name: spot for spot in spots_of(position, 0, {1: "2d2c", 2: "2d2c+"}, ("2d", "2c"))}
    assert (spots["stay"].action, spots["+"].action, spots["+"].box) == (1, 2, None)
