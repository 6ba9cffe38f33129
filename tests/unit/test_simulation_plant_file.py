"""Plant files: errors name the setting at fault."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from app.simulation import BadPlant, load_plant

TEXT = (files("app.simulation") / "plant.toml").read_text(encoding="utf-8")


def refused(path: Path, pattern: str, instead: str) -> BadPlant:
    """Return the error of loading the default plant with one change."""
    text, changes = re.subn(pattern, instead, TEXT, count=1, flags=re.MULTILINE)
    assert changes
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadPlant) as caught:
        load_plant(path)
    return caught.value


@pytest.mark.parametrize("shares", ["[0.9, 0.1]", "[-0.1, 0.1]", "[0.5, 1.5]", "[0.1, nan]", "[0.1]", "[true, 1.0]"])
def test_shares_ascend_from_0_to_1(tmp_path: Path, shares: str) -> None:
    error = refused(tmp_path / "plant.toml", r"^sudden_share = \[.*?\]", f"sudden_share = {shares}")
    assert error.message.startswith("regressions.sudden_share")
    assert str(tmp_path / "plant.toml") in error.message
    error = refused(tmp_path / "plant.toml", r"severity = \[.*?\]", f"severity = {shares}")
    assert error.message.startswith("troubles.dead_nodes.severity")


@pytest.mark.parametrize(
    ("pattern", "instead", "unknown", "meant"),
    [
        ("^rows_per_lesson", "rows_per_leson", "learning.rows_per_leson", "learning.rows_per_lesson"),
        (r"^\[time\]", "[tme]", "tme", "time"),
        ("per_day = 0.05", "per_dy = 0.05", "troubles.dead_nodes.per_dy", "troubles.dead_nodes.per_day"),
        (
            "^jitter_elo = 36.0",
            "jiter_elo = 36.0",
            "configs.connect_four_2p.jiter_elo",
            "configs.connect_four_2p.jitter_elo",
        ),
        (r"^\[configs.connect_four_2p", "[configs.conect_four_2p", "configs.conect_four_2p", "configs.connect_four_2p"),
    ],
)
def test_a_misspelt_word_is_named_and_not_the_one_missing_for_it(
    tmp_path: Path, pattern: str, instead: str, unknown: str, meant: str
) -> None:
    error = refused(tmp_path / "plant.toml", pattern, instead)
    assert error.message == f"Unknown setting {unknown!r} in {tmp_path / 'plant.toml'}."
    assert error.hint == f"Did you mean {meant}?"


def test_words_and_files_at_fault_are_named(tmp_path: Path) -> None:
    error = refused(tmp_path / "plant.toml", "^healthy", "wxyz = 1\nhealthy")
    assert error.hint == "There are: checked_games, healthy, noise_sd."
    error = refused(tmp_path / "plant.toml", "^rows_per_lesson.*$", "")
    assert error.message == f"learning.rows_per_lesson in {tmp_path / 'plant.toml'}: Field required."
    with pytest.raises(BadPlant, match="There is no plant file") as absent:
        load_plant(tmp_path / "absent.toml")
    with pytest.raises(BadPlant, match="cannot be read") as odd:
        load_plant(tmp_path / ("x" * 300))
    assert "TOML" not in f"{absent.value.hint}{odd.value.hint}"
