"""The examples of own trainers in a running loop: their models are promoted."""

import subprocess
from pathlib import Path

import pytest
from running_loop import FLYBALL, copied_example, running_loop

from app.events import ModelPromoted, TrainingCompleted, TrainingFailed, TrainingProgress, TrainingRequested


@pytest.mark.timeout(500)
@pytest.mark.parametrize("example", [pytest.param("trainer_torch", marks=pytest.mark.slow), "trainer_numpy"])
def test_model_of_example_trainer_is_promoted(tmp_path: Path, example: str) -> None:
    folder = tmp_path / "run"
    settings = copied_example(example, folder)
    with running_loop(folder, settings, cwd=tmp_path) as loop:

        def promoted() -> list:
            return [event for event in loop.events(ModelPromoted) if event.data.step > 0]

        promotion = loop.wait_for("a promotion", promoted)[0]
        trained = next(e for e in loop.events(TrainingCompleted) if e.data.model == promotion.data.model)
        assert trained.data.metrics.keys() == {"policy_loss", "value_loss", "entropy", "seconds"}
        asked = next(e for e in loop.events(TrainingRequested) if e.id == trained.data.request_id)
        epochs = [e.data.epoch for e in loop.events(TrainingProgress) if e.data.request_id == asked.id]
        assert epochs == list(range(1, asked.data.epochs + 1))
        assert not loop.events(TrainingFailed)
        words = [FLYBALL, "--run", str(folder), "trace", promotion.id, "--json"]
        traced = subprocess.run(words, capture_output=True, text=True, check=True)
        assert "flyball.training.completed" in traced.stdout
