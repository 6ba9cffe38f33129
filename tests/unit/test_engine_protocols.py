"""Engines' protocols: questions, and the reading of answers."""

import pyspiel
import pytest

from flyball.app.config import GAMES, BotSettings, EngineProtocol, GameConfig
from flyball.app.core import ConfigKey
from flyball.app.games import open_table
from flyball.app.games.notation import NOTATIONS, EnginePosition, NoNotation, notation_of
from flyball.app.play.engine_protocols import SPEECHES, EngineFault, EngineSpeech

GO = GAMES[ConfigKey("go7_2p")]
CHESS = GameConfig(key=ConfigKey("chess_2p"), game="chess", players=2)
SHOGI = GameConfig(key=ConfigKey("shogi_2p"), game="shogi", players=2)
PLAYED: dict[EngineProtocol, GameConfig] = {"gtp": GO, "uci": CHESS, "usi": SHOGI}


def speech(protocol: EngineProtocol, **settings) -> EngineSpeech:
    bot = BotSettings(command=("x",), protocol=protocol, **settings)
    return SPEECHES[protocol](bot, notation_of(PLAYED[protocol], protocol).options)


@pytest.mark.parametrize(("name", "protocol"), NOTATIONS)
def test_notation_game_has_its_own_action_numbers(name: str, protocol: EngineProtocol) -> None:
    config = PLAYED[protocol]
    table = open_table(config, 1)
    assert config.game.partition("(")[0] == name
    assert (table._rules.codec.to_game == range(table.spec.actions)).all()


@pytest.mark.parametrize("protocol", ["uci", "usi"])
def test_notation_of_random_games_is_read_by_openspiel(protocol: EngineProtocol) -> None:
    notation, seen = notation_of(PLAYED[protocol], protocol), set()
    for seed in range(12):
        state, draw = pyspiel.load_game(PLAYED[protocol].game).new_initial_state(), seed
        while not state.is_terminal() and len(state.history()) < 150:
            position = notation.position(state.history())
            assert sorted(position.legal.values()) == state.legal_actions()
            draw = (draw * 48271 + 11) % (2**31 - 1)
            move, action = sorted(position.legal.items())[draw % len(position.legal)]
            read = state.parse_move_to_action(move) if protocol == "uci" else state.string_to_action(move)
            assert read == action, move
            seen.add(move[2:] if "*" not in move else "drop")
            state.apply_action(action)
        assert len(position.moves) == len(state.history()) - 1
    special = {"uci": {"q"}, "usi": {"drop", "+"}}[protocol]
    assert all(any(move.endswith(sign) for move in seen) for sign in special)


def test_notation_of_go_has_vertices_without_the_letter_i() -> None:
    go = notation_of(GO.replace(game="go(board_size=9,komi=5.5)"), "gtp")
    position = go.position([3, 81])
    assert position.moves == ("d1", "pass")
    assert position.legal["j1"] == 8
    assert (go.options["board_size"], go.options["komi"]) == (9, 5.5)
    with pytest.raises(NoNotation, match=r"go with handicap = 2. Leave handicap out"):
        notation_of(GO.replace(game="go(board_size=19,handicap=2)"), "gtp")


def test_gtp_question_holds_board_limits_and_moves() -> None:
    question = speech("gtp", seconds=1.2, options={"level": 3}).question(EnginePosition(("d4", "pass"), {"a1": 0}), 0.5)
    limits = ("1 set_random_seed 1073741824", "2 boardsize 7", "3 clear_board", "4 komi 7.5", "5 time_settings 0 2 1")
    assert question.commands == (*limits, "6 play b d4", "7 play w pass", "8 genmove b")
    assert question.read(["?1 unknown command", *(f"={number}" for number in range(2, 8)), "=8 A1"]) == "a1"
    with pytest.raises(EngineFault, match=r"it refused 'play w pass': illegal move"):
        question.read(["=1", "?7 illegal move", "=8 A1"])
    (start,) = speech("gtp", options={"level": 3}).start
    assert start.commands == ("1 protocol_version", "2 level 3")
    with pytest.raises(EngineFault, match=r"it refused 'level 3'"):
        start.read(["=1 2", "?2 unknown command"])


def test_uci_and_usi_hold_position_limits_and_options() -> None:
    question = speech("uci", nodes=100, seconds=0.5).question(EnginePosition(("e2e4",), {}), 0.5)
    assert question.commands == ("ucinewgame", "position startpos moves e2e4", "go nodes 100 movetime 500")
    assert question.read(["info depth 1", "bestmove e7e5 ponder g1f3"]) == "e7e5"
    with pytest.raises(EngineFault, match=r"'bestmove' without a move"):
        question.read(["bestmove"])
    assert speech("uci", nodes=1).question(EnginePosition((), {}), 0.5).commands[1] == "position startpos"
    question = speech("usi", seconds=0.25).question(EnginePosition(("7g7f",), {}), 0.5)
    assert question.commands == ("usinewgame", "position startpos moves 7g7f", "go btime 0 wtime 0 byoyomi 250")
    assert question.read(["bestmove P*5e"]) == "P*5e"
    hello, options = speech("uci", nodes=1, options={"Skill Level": 3, "Ponder": False}).start
    assert hello.commands == ("uci",)
    assert hello.read(["option name Skill Level type spin", "option name Ponder type check", "uciok"]) == "uciok"
    with pytest.raises(EngineFault, match=r"it has no option 'skill level', but Ponder"):
        hello.read(["option name Ponder type check", "uciok"])
    assert options.commands == ("setoption name Skill Level value 3", "setoption name Ponder value false", "isready")
