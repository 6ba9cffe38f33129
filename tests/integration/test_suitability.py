"""Settings that cannot run are refused before anything starts."""

import pytest

from app.config import GAMES, NetworkSettings, RunSettings
from app.config.loading import BadSettings
from app.games import open_table
from daemons.suitability import check_lasting, check_playable

KEY = "tic_tac_toe_2p"
SETTINGS = RunSettings(configs=(GAMES[KEY],))


def changed(**fields) -> RunSettings:
    return RunSettings(configs=(GAMES[KEY].replace(**fields),))


def test_all_known_configurations_can_be_played():
    check_playable(RunSettings(configs=tuple(GAMES.values())))


@pytest.mark.parametrize("fields", [{"game": "nosuch"}, {"players": 5}])
def test_what_cannot_be_played_is_refused_by_its_key(fields):
    with pytest.raises(BadSettings, match=KEY):
        check_playable(changed(**fields))


@pytest.mark.parametrize("fields", [{"game": "connect_four"}, {"network": NetworkSettings(hidden=(64,))}])
def test_what_models_depend_on_may_not_change(fields):
    with pytest.raises(BadSettings, match=f"{KEY} was begun with {next(iter(fields))}"):
        check_lasting([SETTINGS], changed(**fields))


def test_anything_else_may_change_and_so_may_new_and_dropped_configurations():
    check_lasting([], SETTINGS)
    check_lasting([SETTINGS], changed(rows_per_training=5))
    check_lasting([SETTINGS], RunSettings(configs=(GAMES["hex7_2p"],)))


def test_a_heuristic_player_is_wanted_only_where_there_is_one():
    with pytest.raises(BadSettings, match="tic_tac_toe has no such player"):
        check_playable(changed(builtins=("random", "heuristic")))
    for config in GAMES.values():
        has_one = open_table(config, 0).spec.heuristic is not None
        assert ("heuristic" in config.builtins) == has_one, config.key


@pytest.mark.parametrize(
    ("game", "said"),
    [("cheess", "OpenSpiel has no game 'cheess'. Did you mean chess "), ("hex(size=3)", "Unknown parameter 'size'")],
)
def test_what_openspiel_says_is_said_once_and_in_a_line(capfd, game, said):
    """OpenSpiel itself writes to stderr, for an unknown name the list of all its games."""
    with pytest.raises(BadSettings) as refused:
        check_playable(changed(game=game))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")
