"""The notebook: its cells run, and show what the loop did."""

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"


@pytest.mark.timeout(400)
def test_tour_shows_a_trained_policy_and_a_promotion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(TOUR, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        cell.outputs[-1].data["text/plain"] if cell.outputs else ""
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    _, trained, score, returns, promotion, state, names, ended = shown
    assert str(Path("trained") / "models") in trained
    assert float(score.partition("mean=")[2].partition(",")[0]) > 0.6
    assert returns.startswith("array([[")
    (model,) = re.findall(r"[0-9a-f]{64}", promotion)
    assert (tmp_path / "run" / "store" / model[:2] / model[2:4] / model).is_file()
    assert "Champion(" in state
    assert "EVALUATION_COMPLETED" in names
    assert ended == "0"


def test_tour_is_kept_without_outputs() -> None:
    cells = nbformat.read(TOUR, as_version=4).cells
    assert not any(cell.get("outputs") for cell in cells)
