"""``flyball observe --check``: what is in the files, and what advice they allow."""

from pathlib import Path

import pytest
from commands import invoke

SETTINGS = """
configs = ["mine_2p"]
mode = "advise"
[games.mine_2p]
backend = "external"
game = "mine"
players = 2
[observe.trainings]
file = "log.jsonl"
fact = "training"
fields = { model = "ckpt", step = "step" }
"""
PROMOTIONS = """
[observe.best]
file = "log.jsonl"
fact = "promotion"
where = { best = "true" }
fields = { model = "ckpt", step = "step" }
"""


@pytest.mark.parametrize(("rules", "warns"), [("", True), (PROMOTIONS, False)])
def test_check_warns_where_no_model_is_ever_current(tmp_path: Path, rules: str, warns: bool) -> None:
    (tmp_path / "flyball.toml").write_text(SETTINGS + rules)
    (tmp_path / "log.jsonl").write_text('{"ckpt": "a", "step": 1}\n')
    checked = invoke("observe", "--check", run=tmp_path)
    assert (checked.exit_code, checked.stdout) == (0, "mine_2p TRAINING_COMPLETED: 1\n")
    assert ("No rule has the fact promotion for mine_2p" in checked.stderr) == warns


def test_check_exits_with_1_for_a_bad_record(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(SETTINGS + PROMOTIONS)
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n')
    checked = invoke("observe", "--check", run=tmp_path)
    assert checked.exit_code == 1
    assert "log.jsonl: line 1: there is no column 'ckpt'" in checked.stderr
