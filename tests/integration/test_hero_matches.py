"""``flyball eval --mixed`` in small Diplomacy, and leagues of PEFT folders."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke, refused

from flyball.app.api.evaluation import evaluate
from flyball.app.config import GAMES, LanguageSettings
from flyball.app.language import jobs
from flyball.app.language.adapters import export_adapter
from flyball.app.language.base_model import get_base
from flyball.app.language.generator import get_adapter
from flyball.app.language.training_settings import LoopSettings
from flyball.app.store import FileStore
from flyball.app.train.state import STATE
from flyball.app.train.text import TextRun

KEY = "diplomacy_small_3p"
TINY = LanguageSettings(
    teacher="random", lessons=0, base_layers=1, base_width=16, base_heads=1, rank=2, targets=("q_proj", "v_proj")
)
CONFIG = GAMES[KEY].replace(game="diplomacy_small(last_year=1901)", language=TINY)
SETTINGS = f"""
[games.{KEY}]
game = "{CONFIG.game}"
"""

Flyball = Callable[..., Result]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a training, base model, adapters and settings. There are two adapters of PEFT."""
    home = tmp_path_factory.mktemp("home")
    training = home / "training"
    store = FileStore(training / "models")
    spec = {"store": str(training / "models"), "config": CONFIG.model_dump(mode="json"), "seed": 1}
    model = jobs.initialise(spec, lambda _report: None)["model"]
    run = TextRun(config=CONFIG, loop=LoopSettings(), seed=1, iteration=0, first=model, model=model)
    (training / STATE).write_text(run.model_dump_json())
    adapter = get_adapter(store, model)
    base = get_base(store, adapter.checkpoint.manifest.base)
    base.model.save_pretrained(home / "base")
    base.tokenizer.save(str(home / "base" / "tokenizer.json"))
    exported = export_adapter(adapter, home / "exported", str(home / "base"))
    (home / "grpo").mkdir()
    exported.rename(home / "grpo" / "adapter_v50")
    (home / "flyball.toml").write_text(SETTINGS)
    (home / "based.toml").write_text(f'{SETTINGS}[games.{KEY}.language]\nbase = "{home / "base"}"\n')
    return home


@pytest.fixture
def flyball(home: Path, tmp_path: Path) -> Flyball:
    def run(*words: str, settings: str = "flyball.toml") -> Result:
        place = ("--run", str(tmp_path / "run"), "--config-file", str(home / settings))
        return invoke(*place, *words)

    return run


def evaluated(done: Result) -> dict:
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def hero(home: Path, *words: str) -> tuple[str, ...]:
    return ("eval", "--config", KEY, "--model", str(home / "training"), *words)


def test_baselines_are_mixed_at_one_table(flyball: Flyball, home: Path) -> None:
    words = hero(home, "--mixed", "baselines", "--games", "10")
    found = evaluated(flyball(*words))
    assert found["games"] == 12  # whole rotations of three seats
    assert [one["seats"] for one in found["powers"].values()] == [4, 4, 4]
    assert found["agents"][0]["agent"] == found["model"]
    assert {one["agent"] for one in found["agents"][1:]} <= {"random", "chaos", "coordinated"}
    assert sum(one["seats"] for one in found["agents"]) == 36
    assert found["score"]["n"] == 12
    assert 0 < found["score"]["mean"] < 1
    assert found == evaluated(flyball(*words))


def test_hero_alone_is_not_rated_against_itself(flyball: Flyball, home: Path) -> None:
    found = evaluated(flyball(*hero(home, "--mixed", "self", "--power", "BASALT", "--games", "2")))
    (alone,) = found["agents"]
    assert (found["games"], found["score"], alone["elo"], alone["seats"]) == (2, None, None, 6)


def test_power_pins_the_seat_and_power_adapters_the_others(flyball: Flyball, home: Path) -> None:
    words = ("--power", "CORAL", "--power-adapters", "AMBER=chaos", "--games", "2")
    found = evaluated(flyball(*hero(home, *words)))
    assert [*found["powers"]] == ["CORAL"]
    assert [one["agent"] for one in found["agents"]] == [found["model"], "base_model", "chaos"]
    assert {one["seats"] for one in found["agents"]} == {2}
    refused(flyball(*hero(home, *words, "--power-adapters", "CORAL=random")), 2, "hero's power")
    unknown = flyball(*hero(home, "--mixed", "self", "--power", "FRANCE"))
    assert "They are AMBER, BASALT, CORAL" in unknown.stderr


def test_text_games_have_plain_matches_too(flyball: Flyball, home: Path) -> None:
    found = evaluated(flyball(*hero(home, "--against", "random,base_model", "--games", "3")))
    assert [match["opponent"] for match in found["results"]] == ["random", "base_model"]
    assert {match["games"] for match in found["results"]} == {3}
    searched = flyball(*hero(home, "--against", f"{home / 'training'}+64"))
    assert "language models do not search" in searched.stderr


def test_python_api_finds_the_game_of_a_text_training(home: Path, tmp_path: Path) -> None:
    found = evaluate(home / "training", games=3, run=tmp_path, config_file=home / "flyball.toml")
    assert (found.config, found.results[0].games) == (KEY, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--config K --mixed self --power-adapters A=b", "leave one of them out"),
        ("--config K --power FRANCE", "--power goes with"),
        ("--config K --power-adapters FRANCE=random", "goes with --power"),
        ("--config K --power FRANCE --power-adapters ENGLAND", "POWER=PLAYER"),
        ("--config K --power CORAL --power-adapters AMBER=random,AMBER=chaos", "names a power twice"),
        ("--config K --mixed self --league FILE", "--league goes with --mixed league"),
        ("--config K --mixed self --against random", "--against does not go with"),
        ("--config K --mixed self --workers 2", "--workers does not go with"),
        ("--config K --mixed self --search 8", "--search does not go with"),
        ("--env CartPole-v1 --mixed self", "--mixed goes with --config"),
    ],
)
def test_options_that_do_not_fit_are_refused(home: Path, words: str, said: str) -> None:
    given = words.replace("FILE", str(home / "flyball.toml")).replace("K ", f"{KEY} ")
    refused(invoke("eval", *given.split()), 2, said)


def test_mixed_opponents_are_for_language_models() -> None:
    done = invoke("eval", "--config", "hearts_4p", "--mixed", "self")
    assert "for language models" in done.stderr


LEAGUE = {
    "agents": {
        "base_model": {"type": "baseline", "elo": 1000, "matches": 0, "path": None},
        "random_bot": {"type": "baseline", "elo": 800, "matches": 0, "path": None},
        "chaos_bot": {"type": "baseline", "elo": 900, "matches": 0, "path": None},
        "adapter_v50": {
            "type": "checkpoint",
            "path": "grpo/adapter_v50",
            "elo": 1200,
            "matches": 3,
            "step": 50,
            "created_at": "2025-12-06T10:00:00Z",
            "parent": "adapter_v40",
        },
    },
    "history": [
        {"step": 50, "p1": "adapter_v50", "p2": "random_bot", "result": 1.0},
        {"step": 50, "p1": "adapter_v50", "p2": "chaos_bot", "result": {"games": 2, "points": 1.5}},
        {"step": 50, "p1": "adapter_v50", "p2": "adapter_v50", "result": 0.5},
    ],
    "metadata": {"run_name": "grpo", "best_elo": 1200, "best_agent": "adapter_v50"},
}


def test_league_of_adapter_paths_is_imported_and_played(flyball: Flyball, home: Path, tmp_path: Path) -> None:
    (home / "league.json").write_text(json.dumps(LEAGUE))
    registry = tmp_path / "registry.json"
    words = ("league", KEY, "--import", str(home / "league.json"), "--registry", str(registry))
    imported = evaluated(flyball(*words, settings="based.toml"))
    assert imported["agents"] == 4
    written = json.loads(registry.read_text())
    (name,) = set(imported["new"]) - {"base_model", "random", "chaos"}
    entry = written["agents"][name]
    assert (entry["path"], entry["elo"], entry["step"], entry["parent"]) == (name, 400.0, 50, None)
    assert written["agents"]["random"]["elo"] == 0
    assert {(one["p2"], one["result"]["games"]) for one in written["history"]} | {
        (one["p1"], one["result"]["games"]) for one in written["history"]
    } >= {("random", 1), ("chaos", 2)}
    assert get_adapter(FileStore(tmp_path / "run" / "store"), name).checkpoint.manifest.config_key == KEY
    mixed = ("eval", "--config", KEY, "--model", str(home / "grpo" / "adapter_v50"), "--mixed", "league")
    found = evaluated(flyball(*mixed, "--league", str(registry), "--games", "3", settings="based.toml"))
    assert found["model"] == name
    assert {one["agent"] for one in found["agents"]} <= {name, "base_model", "random", "chaos"}
    assert len(found["agents"]) > 1


def test_missing_adapter_of_a_league_is_named(flyball: Flyball, home: Path, tmp_path: Path) -> None:
    agents = LEAGUE["agents"] | {"adapter_v60": LEAGUE["agents"]["adapter_v50"] | {"path": "grpo/adapter_v60"}}
    (home / "gone.json").write_text(json.dumps(LEAGUE | {"agents": agents}))
    words = ("league", KEY, "--import", str(home / "gone.json"), "--registry", str(tmp_path / "registry.json"))
    done = flyball(*words, settings="based.toml")
    assert done.exit_code != 0
    assert f"There is no adapter in {home / 'grpo' / 'adapter_v60'}" in done.stderr
    assert not (tmp_path / "registry.json").exists()
    done = flyball(*words)  # the settings name no base model
    assert "language.base" in done.stderr
    done = flyball(*words, "--adapters", str(home / "nowhere"), settings="based.toml")
    assert f"There is no adapter in {home / 'nowhere'}" in done.stderr
    done = flyball("league", "hearts_4p", *words[2:])
    assert "is played by policy_gradient" in done.stderr
