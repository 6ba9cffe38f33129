"""The observer publishes what files say, once, and by the settings' rules."""

import math
import os
from collections.abc import Iterator
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pytest

from flyball.app.config import BadSettings
from flyball.app.config.loading import load
from flyball.app.core import ModelHash
from flyball.app.events import (
    EloUpdated,
    EvaluationCompleted,
    Event,
    ModelPromoted,
    Payload,
    QualityScoreUpdated,
    SelfplayComplete,
    TrainingCompleted,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.league.pool import rate
from flyball.app.observing.mapping import hash_of
from flyball.daemons import observed_config
from flyball.daemons.observer import MOST_AT_ONCE, Complaint, NewFact, Observer, mapped_rules

HEAD = """
configs = ["mine_2p"]
mode = "advise"
[games.mine_2p]
backend = "external"
game = "mine"
players = 2
builtins = ["random"]
"""
RESULTS = """
[observe.results]
file = "results.csv"
fact = "evaluation"
fields = { model = "ckpt", step = "step", opponent = "opp", wins = "w", draws = "d", losses = "l" }
names = { random = "Random Player" }
"""
BEST = """
[observe.best]
file = "best.jsonl"
fact = "promotion"
where = { kind = "best" }
fields = { model = "info.ckpt", step = "step" }
"""
TRAININGS = """
[observe.trainings]
file = "runs/*/log.tsv"
fact = "training"
fields = { step = "iter", rows = "n", parent = "from" }
constants = { model = "ckpt_{iter:03}", seconds = 2.5 }
metrics = ["loss"]
"""
GAMES = """
[observe.games]
file = "games.jsonl"
fact = "selfplay"
fields = { model = "m", games = "g", mean_length = "moves", quality = "q" }
"""


def observer(folder: Path, *rules: str) -> Observer:
    (folder / "flyball.toml").write_text(HEAD + "".join(rules))
    return Observer(mapped_rules(load(folder)))


def look(watching: Observer) -> Iterator[NewFact | Complaint]:
    return chain.from_iterable(watching.look())


def facts(found: Iterator[NewFact | Complaint], kind: type[Payload] | None = None) -> list[Any]:
    payloads = [fact.data for fact in found if isinstance(fact, NewFact)]
    return [data for data in payloads if kind is None or isinstance(data, kind)]


def recorded(fact: NewFact, number: int) -> Event[Any]:
    return Event(originate(fact.data, event_id=fact.id, time=EPOCH, subject=fact.config_key), number, 0, "observer@x")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.csv"
    path.write_text(
        "ckpt,step,opp,w,d,l\na.pt,1,Random Player,60,20,20\nb.pt,2,Random Player,80,10,10\nb.pt,2,a.pt,30,0,10\n"
    )
    return path


def test_results_are_rated_against_named_opponents(tmp_path: Path, results: Path) -> None:
    first, second, third = facts(look(observer(tmp_path, RESULTS)), EvaluationCompleted)
    assert [(data.purpose, data.step) for data in (first, second, third)] == [
        ("rating", 1),
        ("rating", 2),
        ("tournament", 2),
    ]
    assert first.results[0].opponent == "random"
    assert first.results[0].opponent_model is None
    assert first.model == hash_of("a.pt") == sha256(b"a.pt").hexdigest()
    assert third.results[0].opponent_model == first.model
    assert 0 < first.elo < second.elo
    assert (first.seconds, first.lost_games, first.undecided_games) == (None, None, None)
    assert first.request_id == "results.csv: line 2 (results)"


def test_ratings_of_independent_games_have_their_variance(tmp_path: Path, results: Path) -> None:
    (match,) = facts(look(observer(tmp_path, RESULTS)), EvaluationCompleted)[0].results
    assert (match.wins, match.draws, match.losses, match.score.mean) == (60, 20, 20, 0.7)
    assert match.graded.rotations == 50
    assert match.graded.variance == pytest.approx((0.65 - 0.49) / 2)


def test_records_of_a_start_come_in_order_of_steps(tmp_path: Path, results: Path) -> None:
    lines = [
        f'{{"kind": "best", "info": {{"ckpt": "{name}"}}, "step": {step}}}' for name, step in (("a.pt", 1), ("b.pt", 2))
    ]
    (tmp_path / "best.jsonl").write_text("\n".join([*lines, lines[-1], '{"kind": "start"}', ""]))
    found = facts(look(observer(tmp_path, BEST, RESULTS)))
    kinds = [type(data) for data in found if not isinstance(data, EloUpdated)]
    assert kinds == [EvaluationCompleted, ModelPromoted, *[EvaluationCompleted] * 2, ModelPromoted]
    first, second = (data for data in found if isinstance(data, ModelPromoted))
    assert (first.previous, second.previous) == (None, first.model)
    assert first.evidence.games == 100
    gate = [data for data in found if isinstance(data, EvaluationCompleted)][-1]
    assert gate.purpose == "gate", "it met the current model"


def test_promotion_without_a_rating_rests_on_no_games(tmp_path: Path) -> None:
    (tmp_path / "best.jsonl").write_text('{"kind": "best", "info": {"ckpt": "a"}, "step": 1}\n')
    (promoted,) = facts(look(observer(tmp_path, BEST)))
    assert promoted.evidence.games == 0


def test_results_without_the_zero_are_rated_too(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("ckpt,step,opp,w,d,l\na,1,b,10,0,5\nb,2,a,5,0,10\n")
    found = list(look(observer(tmp_path, RESULTS)))
    assert not [one for one in found if isinstance(one, Complaint)]
    first, second = facts(iter(found), EvaluationCompleted)
    assert first.elo > second.elo, "the same games from both sides"


BESTS = BEST.replace("best.jsonl", "*/best.jsonl")


def best(folder: Path, name: str, *promoted: tuple[str, int]) -> None:
    lines = [f'{{"kind": "best", "info": {{"ckpt": "{model}"}}, "step": {step}}}\n' for model, step in promoted]
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "best.jsonl").write_text("".join(lines))


def restarted(folder: Path, before: list[NewFact]) -> Observer:
    again = observer(folder, BESTS)
    for number, fact in enumerate(before):
        again.recorded(recorded(fact, number))
    return again


def test_old_promotion_does_not_come_back(tmp_path: Path) -> None:
    """The file loses its first line, so that the repetition of it begins the file."""
    best(tmp_path, "run", ("a", 1), ("a", 2), ("b", 3), ("b", 4))
    before = [fact for fact in look(observer(tmp_path, BESTS)) if isinstance(fact, NewFact)]
    assert [fact.data.step for fact in before] == [1, 3], "to name the current model again is no news"
    best(tmp_path, "run", ("a", 2), ("b", 3), ("b", 4), ("c", 5))
    assert [data.step for data in facts(look(restarted(tmp_path, before)))] == [5]


def test_promotions_of_several_files_come_once(tmp_path: Path) -> None:
    """Another run names the current model under a lower step, and goes on from it."""
    best(tmp_path, "run1", ("a", 5), ("b", 6))
    watching = observer(tmp_path, BESTS)
    before = [fact for fact in look(watching) if isinstance(fact, NewFact)]
    best(tmp_path, "run2", ("b", 0), ("c", 1))
    before += [fact for fact in look(watching) if isinstance(fact, NewFact)]
    assert [fact.data.model for fact in before][-1] == hash_of("c")
    assert facts(look(restarted(tmp_path, before))) == []


def test_links_to_files_add_nothing(tmp_path: Path) -> None:
    best(tmp_path, "run1", ("a", 1))
    (tmp_path / "latest").symlink_to("run1")
    assert [data.step for data in facts(look(observer(tmp_path, BESTS)))] == [1]


def test_file_name_of_any_bytes_is_read(tmp_path: Path) -> None:
    best(tmp_path, os.fsdecode(b"run\xff"), ("a", 1))
    assert [data.step for data in facts(look(observer(tmp_path, BESTS)))] == [1]


def test_restart_publishes_what_a_kill_left_out(tmp_path: Path, results: Path) -> None:
    """The ratings of others come after the results, so that a kill may come between."""
    before = [fact for fact in look(observer(tmp_path, RESULTS)) if isinstance(fact, NewFact)]
    assert [type(fact.data) for fact in before] == [EvaluationCompleted] * 3 + [EloUpdated]
    for known in range(len(before) + 1):  # a kill after each of them
        restarted = observer(tmp_path, RESULTS)
        for number, fact in enumerate(before[:known]):
            restarted.recorded(recorded(fact, number))
        assert [fact.id for fact in look(restarted)] == [fact.id for fact in before[known:]]
        assert list(look(restarted)) == []


def test_results_that_are_read_together_are_fitted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"m{step},{step},Random Player,60,0,40\n" for step in range(1, 600)]
    (tmp_path / "results.csv").write_text("ckpt,step,opp,w,d,l\n" + "".join(lines))
    fits = list[int]()
    monkeypatch.setattr(observed_config, "rate", lambda *games: fits.append(1) or rate(*games))
    ratings = [data.elo for data in facts(look(observer(tmp_path, RESULTS)), EvaluationCompleted)]
    assert len(fits) == math.ceil(599 / MOST_AT_ONCE) + 1, "those of bots and champions come at the end"
    assert ratings == [pytest.approx(400 * math.log10(0.6 / 0.4), abs=3)] * 599


def test_rewritten_file_publishes_only_what_is_new(tmp_path: Path, results: Path) -> None:
    watching, text = observer(tmp_path, RESULTS), results.read_text()
    assert len(facts(look(watching), EvaluationCompleted)) == 3
    results.write_text("")
    assert facts(look(watching)) == []
    results.write_text(text + "c.pt,3,Random Player,9,0,1\n")
    assert [data.step for data in facts(look(watching), EvaluationCompleted)] == [3]
    results.rename(tmp_path / "results.csv.1")
    results.write_text("ckpt,step,opp,w,d,l\nd.pt,4,Random Player,9,0,1\n")
    assert [data.step for data in facts(look(watching), EvaluationCompleted)] == [4]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("x,1,Random Player,few,0,1", "wins ('few' in w): Input should be a valid integer"),
        ("x,1,Random Player,0,0,0", "no game was won, drawn or lost"),
        ("x,-1,Random Player,1,0,0", "step ('-1' in step): Input should be greater than or equal to 0"),
        ("x,1,x,1,0,0", "a model is its own opponent"),
        (",1,Random Player,1,0,0", "model ('' in ckpt): Field required"),
        ("x,1", "it has 2 values for the 6 columns of the first line"),
    ],
)
def test_bad_record_is_reported_with_its_place(tmp_path: Path, results: Path, line: str, what: str) -> None:
    text = results.read_text()
    results.write_text(f"{text}{line}\ny,5,Random Player,1,1,0\n")
    found = list(look(observer(tmp_path, RESULTS)))
    (complaint,) = (fact for fact in found if isinstance(fact, Complaint))
    assert complaint[:3] == ("results", "results.csv", "line 5")
    assert complaint.what.startswith(what)
    assert len(facts(iter(found), EvaluationCompleted)) == 4


def test_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("ckpt,step,opp,w,d\na,1,b,1,1\n")
    (complaint,) = look(observer(tmp_path, RESULTS))
    assert complaint.what == "there is no column 'l'; there are: ckpt, d, opp, step, w"


def test_trainings_take_constants_and_metrics(tmp_path: Path) -> None:
    for run, rows in (("one", "4\t100\t\t0.5\n"), ("two", "x\t\t\t\n6\t\tckpt_004\t\n")):
        (tmp_path / "runs" / run).mkdir(parents=True)
        (tmp_path / "runs" / run / "log.tsv").write_text("iter\tn\tfrom\tloss\n" + rows)
    found = list(look(observer(tmp_path, TRAININGS)))
    first, second = facts(iter(found), TrainingCompleted)
    assert (first.model, first.rows, first.metrics, first.seconds) == (hash_of("ckpt_004"), 100, {"loss": 0.5}, 2.5)
    assert (second.parent, second.rows, second.metrics) == (hash_of("ckpt_004"), None, {})
    (complaint,) = (fact for fact in found if isinstance(fact, Complaint))
    assert complaint.what.startswith("step ('x' in iter): Input should be a valid integer")


def test_training_without_metrics_is_published(tmp_path: Path) -> None:
    best(tmp_path, "run", ("a", 1))
    (trained,) = facts(look(observer(tmp_path, BESTS.replace('"promotion"', '"training"'))))
    assert (type(trained), trained.step, trained.metrics) == (TrainingCompleted, 1, {})


@pytest.mark.parametrize("bad", ["nan", "-inf", "diverged"])
def test_unusable_metric_costs_only_itself(tmp_path: Path, bad: str) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    rule = TRAININGS.replace('["loss"]', '["loss", "entropy"]')
    lines = [f"{step}\t8\t\t{bad if step > 1 else 0.5}\t{step}.5\n" for step in range(5)]
    (tmp_path / "runs" / "one" / "log.tsv").write_text("".join(["iter\tn\tfrom\tloss\tentropy\n", *lines]))
    found = list(look(observer(tmp_path, rule)))
    metrics = [data.metrics for data in facts(iter(found), TrainingCompleted)]
    assert metrics == [{"loss": 0.5, "entropy": 0.5}, {"loss": 0.5, "entropy": 1.5}] + [
        {"entropy": step + 0.5} for step in (2, 3, 4)
    ]
    (complaint,) = (fact for fact in found if isinstance(fact, Complaint))
    assert complaint[2:] == ("line 4", f"loss is {bad!r}, not a finite number, and left out here and further on")


def test_selfplay_leaves_open_what_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "games.jsonl").write_text(
        '{"m": "a", "g": 10, "moves": 25.5, "q": 0.9}\n{"m": "a", "g": 10, "moves": 25.5}\n'
    )
    first, scored, second = facts(look(observer(tmp_path, GAMES)))
    assert isinstance(first, SelfplayComplete)
    assert isinstance(scored, QualityScoreUpdated)
    assert (first.shard.rows, first.shard.games, first.shard.seed, first.shard.worker) == (255, 10, None, None)
    assert (first.temperature, first.truncated_games, first.seconds) == (None, None, None)
    assert scored.score == 0.9
    assert second.shard.key != first.shard.key


def test_name_with_a_content_hash_is_that_hash() -> None:
    content = sha256(b"weights").hexdigest()
    assert hash_of(f"s3://bucket/{content}.pt") == content
    assert hash_of("latest.pt") == ModelHash(sha256(b"latest.pt").hexdigest())


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (RESULTS.replace('losses = "l"', 'losing = "l"'), "has no field 'losing'"),
        (RESULTS.replace(', losses = "l"', ""), "needs wins and losses"),
        (RESULTS.replace('model = "ckpt", ', ""), "needs model"),
        (RESULTS.replace("results.csv", "results.dat"), "does not tell its format"),
        (RESULTS.replace("random =", "stockfish ="), "names the bot stockfish"),
        (RESULTS + 'config = "other_2p"\n', "which the run does not have"),
        (GAMES.replace('mean_length = "moves", ', ""), "needs rows or mean_length"),
        (BEST + "constants = { step = 1 }\n", "both among fields and among constants"),
    ],
)
def test_rule_that_cannot_work_is_refused(tmp_path: Path, rule: str, why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        observer(tmp_path, rule)


def test_files_are_for_a_run_that_advises(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(HEAD.replace('mode = "advise"\n', "") + RESULTS)
    with pytest.raises(BadSettings, match="only advises"):
        load(tmp_path)


def test_run_that_plays_itself_cannot_only_advise(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text('configs = ["tic_tac_toe_2p"]\nmode = "advise"\n')
    with pytest.raises(BadSettings, match="external"):
        load(tmp_path)


def test_many_files_are_read_with_few_of_them_open(tmp_path: Path) -> None:
    for number in range(30):
        best(tmp_path, f"run{number}", *((f"{number}.{step}", step) for step in range(1, 30)))
    rule = BESTS.replace('"promotion"', '"training"')
    opened, steps = set[int](), list[int]()
    for piece in observer(tmp_path, rule).look():
        opened.add(sum("best.jsonl" in file.path for file in psutil.Process().open_files()))
        steps += [fact.data.step for fact in piece if isinstance(fact, NewFact)]
    assert opened == {0}
    assert steps == sorted(steps)
    assert len(steps) == 30 * 29
