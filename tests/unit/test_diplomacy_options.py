"""Options of Diplomacy: scoring, win bonus, last year. They are part of a configuration's game string."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from flyball.app.config import GAMES
from flyball.app.config.loading import load
from flyball.app.games.table import UnknownGame
from flyball.app.language.diplomacy_text import VARIANTS, DiplomacyVariant
from flyball.app.language.text_games import open_text_table, text_table


def finished(game: str, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and returns of four games. A coordinated bot plays against chaos bots."""
    table, rng = text_table(game, 4), Random(seed)
    table.reset(range(4), range(4), [0] * 4)
    while turns := table.pending():
        for turn in turns:
            bot = "coordinated" if turn.seat == 0 else "chaos"
            table.submit(turn.slot, turn.seat, table.bot(bot, turn, rng))
        table.advance()
    return table.scores(), table.returns()


@pytest.mark.parametrize("key", ["diplomacy_small_3p", "diplomacy_7p"])
def test_configuration_scores_material_by_default(key: str) -> None:
    table = open_text_table(GAMES[key], 1)
    assert table.spec.players == GAMES[key].players == len(table.spec.seats)
    assert {*GAMES[key].builtins} <= {*table.spec.bots}
    plain = DiplomacyVariant(VARIANTS["diplomacy"].board, shown=1, last_year=1910)
    assert (plain.scoring, plain.win_bonus, plain.winner_threshold_sc) == ("material", 5.0, 10)
    games = ("diplomacy", "diplomacy(last_year=1903)", "diplomacy(scoring=placed)", "diplomacy(win_bonus=2)")
    assert len({text_table(game, 0).spec.rules_version for game in games}) == len(games)


def test_win_bonus_and_scores_of_the_field_are_options() -> None:
    """Eliminated powers score below 0, but all returns are in bounds."""
    plain, _ = finished("diplomacy_small(win_bonus=0)")
    bonus, _ = finished("diplomacy_small(win_bonus=7,winner_threshold_sc=4)")
    gained = bonus - plain
    assert set(gained.ravel().tolist()) == {0.0, 7.0}
    assert (gained.sum(axis=1) <= 7).all()
    scores, returns = finished("diplomacy_small(scoring=placed)")
    assert scores.max() > 50
    assert np.allclose(returns.sum(axis=1), 0, atol=1e-5)
    assert (np.abs(returns) <= 1).all()
    for row, gained in zip(scores, returns, strict=True):
        assert (np.diff(gained[np.argsort(row)]) >= -1e-6).all()


@pytest.mark.parametrize(
    "game",
    [
        *(f"diplomacy({option})" for option in ("scoring=best", "win_bonus=nan", "win_bonus=-1", "last_year=1900")),
        *(f"diplomacy({option})" for option in ("winner_threshold_sc=many", "bonus=3", "", "last_year")),
        *("connect_four(scoring=placed)", "diplomacies"),
    ],
)
def test_unusable_option_is_refused_with_those_there_are(game: str) -> None:
    with pytest.raises(UnknownGame) as refusal:
        text_table(game, 1)
    assert "scoring" in str(refusal.value.hint)


def test_settings_that_stand_for_keys_of_other_programs_exist(tmp_path: Path) -> None:
    """ADR/guide/language.md maps the keys of other leagues to these."""
    league = ("admission.recent_every", "admission.recent_for", "admission.anchor_every", "admission.elite_margin")
    shares = ("mirror", "peers", "exploitable", "baselines", "prioritised", "curve", "peer_elo", "cold_start")
    game = ("selfplay.most_opponents", "language.rank", "language.base", "evaluation.model_games", "builtins", "game")
    values = load(tmp_path, {"configs": ["diplomacy_7p"], "league": {"matchmaking": "balanced"}}).values()
    for key in (*(f"league.{name}" for name in league), *(f"games.diplomacy_7p.{name}" for name in game)):
        assert key in values, key
    assert [values[f"league.matchmaking.{name}"] for name in shares] == [0.3, 0.4, 0.2, 0.1, 0.0, "even", 100.0, 2]
    assert values["games.diplomacy_7p.selfplay.most_opponents"] == 7  # with the hero, the eight adapters of max_loras
