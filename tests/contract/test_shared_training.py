"""A league in a file that eight training processes share."""

import multiprocessing
from pathlib import Path

import pytest
from league_training import rated, registry, train_line

from flyball.app.league.bradley_terry import fit_bradley_terry

PROCESSES, STEPS = 8, 1000
RATING_GAMES, FINAL_GAMES = 100, 400


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_eight_processes_train_a_thousand_steps_on_one_registry(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    lines = [context.Process(target=train_line, args=(tmp_path, n, PROCESSES, STEPS)) for n in range(PROCESSES)]
    for line in lines:
        line.start()
    for line in lines:
        line.join()
    assert [line.exitcode for line in lines] == [0] * PROCESSES, "a lock error ends a process"
    league = registry(tmp_path).read()
    assert league.agents["random"].matches == STEPS, "no update was lost"
    newest = [agent.id for agent in league.checkpoints][-4:]
    played = [
        pair
        for number, model in enumerate(newest)
        for pair in rated(tmp_path, model, ("random", *newest[:number]), RATING_GAMES, seed=number)
    ]
    ratings = fit_bradley_terry(played)
    assert all(ratings.rating(model).interval()[0] > 0 for model in newest), "rated above the baseline, beyond doubt"
    best = max(newest, key=lambda model: ratings.rating(model).elo)
    (fresh,) = rated(tmp_path, best, ("random",), FINAL_GAMES, seed=PROCESSES)
    assert fresh.mean > 0.8
