"""Settings and wiring of the user's own controllers: checks, graph, versions."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from driving import run_settings

from flyball.app.cli.group import main
from flyball.app.config import BadSettings, RunSettings
from flyball.app.config.loading import load
from flyball.app.controllers.controller import Controller
from flyball.app.events import HyperparameterUpdated, TrainingCompleted
from flyball.daemons.bootstrap import LooseEnd, check, check_controllers, consumers, emitters
from flyball.daemons.graph import render, whole
from flyball.daemons.registry import DAEMONS, daemons_of
from flyball.daemons.saved_state import program_version
from flyball.daemons.suitability import check_lasting

EXAMPLES = Path(__file__).parents[1] / "examples"
COSINE = {"use": "my_controller:Cosine", "takes_over": ("learning_rate",), "options": {"trainings": 4, "lowest": 0.1}}
RULES = str(Path(__file__).parents[1] / "support" / "own_rules.py")


def settings(**tables: Any) -> RunSettings:
    return run_settings().replace(controllers=tables)


def own(use: str, *takes_over: str, **options: Any) -> RunSettings:
    return settings(
        mine={"use": f"own_rules:{use}", "takes_over": takes_over or ("learning_rate",), "options": options}
    )


def test_example_settings_are_fit(tmp_path: Path) -> None:
    file = tmp_path / "flyball.toml"
    file.write_text((EXAMPLES / "my_controller.toml").read_text())
    loaded = load(tmp_path)
    check_controllers(loaded.run)
    assert loaded.run.taken_over == {"learning_rate": "cosine"}
    assert loaded.run.controllers["cosine"].options == {"trainings": 200, "lowest": 0.05}
    assert loaded.origins["controllers.cosine.options.lowest"] == "flyball.toml"
    assert loaded.values()["controllers.cosine.use"] == "my_controller:Cosine"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "use = 'a:B'\ntakes_over = ['speed']",
            r"controllers.mine.takes_over.0 \(flyball.toml\): Input should be 'learning_rate'",
        ),
        ("uses = 'a:B'", "Unknown setting 'controllers.mine.uses' in .*flyball.toml.* controllers.mine.use?"),
        ("takes_over = ['rollback']", r"controllers.mine.use \(flyball.toml\): Field required"),
        (
            "use = 'a:B'\ntakes_over = ['rollback']\n[controllers.other]\nuse = 'c:D'\ntakes_over = ['rollback']",
            r"controllers \(flyball.toml\): mine and other both take over rollback",
        ),
    ],
)
def test_bad_table_is_refused(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "flyball.toml").write_text(f"[controllers.mine]\n{text}\n")
    with pytest.raises(BadSettings, match=error):
        load(tmp_path)


def test_tables_are_set_by_variables_and_dropped_by_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flyball.toml").write_text((EXAMPLES / "my_controller.toml").read_text())
    monkeypatch.setenv("FLYBALL_CONTROLLERS__COSINE__OPTIONS__LOWEST", "0.5")
    monkeypatch.setenv("FLYBALL_CONTROLLERS__COSINE__TAKES_OVER", '["learning_rate", "epochs"]')
    table = load(tmp_path).run.controllers["cosine"]
    assert (table.options["lowest"], table.takes_over) == (0.5, ("learning_rate", "epochs"))
    assert load(tmp_path, {"controllers": {}}).run.controllers == {}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (own("Missing"), "controllers.mine: 'own_rules:Missing' cannot be imported: AttributeError"),
        (settings(mine={"use": "cosine"}), "controllers.mine: There is no 'cosine' among the flyball controllers"),
        (settings(mine={"use": "own_rules:handles"}), r"controllers.mine \(own_rules:handles.*\) is not a controller"),
        (own("Deaf"), f"controllers.mine .own_rules:Deaf in {RULES}. handles no event"),
        (own("Emitting"), "has parameter, which no controller has"),
        (own("Vague"), "does not declare what it emits"),
        (own("Unsaved"), "has rows that cannot be saved: .*dict.* is not a Row"),
        (own("Forging"), "emits TRAINING_COMPLETED, which workers, hosts or operators publish"),
        (own("Greedy"), "emits ADAPTIVE_PARAMS_CHANGED, which sets several knobs"),
        (own("Promoting"), "emits MODEL_PROMOTED, which sets promotion"),
        (own("Sets", "promotion", "learning_rate"), "promotion and does not emit MODEL_PROMOTED or PROMOTION_REJECTED"),
        (own("Demanding", factor=2), "cannot be built: ValueError: a factor of 1 or more lowers nothing"),
        (own("Demanding"), "cannot be built: KeyError: 'factor'"),
        (settings(host={"use": "own_rules:Silent"}), "No controller can be named 'host'"),
    ],
)
def test_unusable_controller_is_refused_with_its_table(wrong: RunSettings, error: str) -> None:
    with pytest.raises(BadSettings, match=error) as refused:
        check_controllers(wrong)
    assert refused.value.hint


def test_controller_that_reads_an_unemitted_type_is_refused() -> None:
    run = settings(cosine=COSINE)
    daemons = {name: spec for name, spec in daemons_of(run).items() if name != "training"}
    with pytest.raises(LooseEnd, match=r"TRAINING_COMPLETED .*controllers.cosine \(my_controller:Cosine"):
        check(daemons, run.taken_over)


def test_own_controller_is_subscribed_drawn_and_listed(tmp_path: Path) -> None:
    run = settings(cosine=COSINE)
    daemons = daemons_of(run)
    assert {name for name in daemons if daemons[name] is not DAEMONS[name]} == {"feedback"}
    assert "cosine" in consumers(daemons)[TrainingCompleted]
    assert emitters(daemons, run.taken_over)[HyperparameterUpdated] == {"GauntletFeedbackController", "cosine"}
    assert "cosine --> HYPERPARAMETER_UPDATED" in render(whole(run), "mermaid").replace(
        "GauntletFeedbackController & ", ""
    )
    (tmp_path / "flyball.toml").write_text((EXAMPLES / "my_controller.toml").read_text())
    listed = CliRunner().invoke(main, ["--run", str(tmp_path), "daemon", "list", "--json"])
    rows = {row["name"]: row["own"] for row in map(json.loads, listed.stdout.splitlines())}
    assert [name for name, one in rows.items() if one] == ["feedback"]
    assert rows["feedback"][0].startswith("controllers.cosine (my_controller:Cosine in ")
    drawn = CliRunner().invoke(main, ["--run", str(tmp_path), "events", "graph", "--compact"])
    (readers,) = [line for line in drawn.stdout.splitlines() if line.startswith("  TRAINING_COMPLETED -->")]
    assert readers.endswith(" & cosine")


def test_taken_over_type_has_one_owner_of_its_class() -> None:
    run = own("Silent", "exploration_boost")
    drawn = {node.payload.event_name: node.emitters for node in whole(run).nodes}
    assert drawn["EXPLORATION_BOOST"] == ("mine",)
    assert drawn["PLATEAU_DETECTED"] == ("FeedbackLoopController",)
    (mine,) = (one for one in daemons_of(own("Sets"))["feedback"].controllers if one.name == "mine")
    assert issubclass(mine, Controller)
    assert (mine.__name__, mine.reads) == ("Sets", mine.__mro__[1].reads)


def test_class_and_version_of_a_controller_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = own("Sets"), own("Silent")
    with pytest.raises(BadSettings, match=r"controllers.mine was begun with use = 'own_rules:Sets'"):
        check_lasting([run_settings(), before, run_settings()], after)
    check_lasting([run_settings(), before], before)
    check_lasting([run_settings()], after)
    monkeypatch.syspath_prepend(tmp_path)
    versions = set()
    for number in (1, 2):
        source = (EXAMPLES / "my_controller.py").read_text() + f"# {number}\n"
        (tmp_path / f"mine{number}.py").write_text(source)
        run = settings(cosine={**COSINE, "use": f"mine{number}:Cosine"})
        versions.add(program_version(daemons_of(run)["feedback"].reducers))
    assert len(versions) == 2
    assert program_version(daemons_of(run_settings())["feedback"].reducers) not in versions
