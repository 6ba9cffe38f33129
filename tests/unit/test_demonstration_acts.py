"""The acts of the demonstration: what they promise exists, and an act without an answer does not end it."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from commands import invoke, refused
from driving import promoted
from recorded_run import recording, write_journal
from scenario_events import known_after, played
from selfplay_rig import put_model
from starlette.datastructures import QueryParams

from flyball.app.api.runs import locate_run
from flyball.app.cli import demonstration
from flyball.app.cli.demonstration import Demonstration, prepare_demonstration, refuse_options
from flyball.app.cli.group import EXIT_CODES, main
from flyball.app.config import RunSettings
from flyball.app.config.loading import load
from flyball.app.controllers.emitters import BUILT_IN
from flyball.app.core import FlyballError
from flyball.app.dashboard.pages.events import EventFilter
from flyball.app.dashboard.server import PAGES
from flyball.app.events import Decision
from flyball.app.scenarios import SCENARIOS, Plan
from flyball.app.scenarios.demonstration import ACTS, Act, settings_text
from flyball.app.store import FileStore
from flyball.daemons.suitability import check_playable

ADDRESS = "http://127.0.0.1:8417/"
LATE = EXIT_CODES["unavailable"]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    folder = tmp_path_factory.mktemp("demo")
    (folder / "flyball.toml").write_text(settings_text())
    return load(folder).run


def planned(act: Act, settings: RunSettings, folder: Path) -> Plan:
    """Return the plan of an act's scenario, for a run with the demonstration's settings."""
    model = put_model(folder, settings.config(act.key), scale=5.0)
    view = known_after(promoted(model, step=0), played("r", model=model), settings=settings, key=act.key)
    store = FileStore(folder)
    assert SCENARIOS[act.scenario].lacks(view, store) is None
    return SCENARIOS[act.scenario].plan(view, store)


def test_settings_can_be_played(settings: RunSettings) -> None:
    check_playable(settings)
    assert {act.key for act in ACTS} == {config.key for config in settings.configs}


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.scenario)
def test_answers_are_steps_that_the_controllers_emit(act: Act, settings: RunSettings, tmp_path: Path) -> None:
    emits = {emitter.name: emitter.emits for emitter in BUILT_IN}
    plan = planned(act, settings, tmp_path)
    promised = [(controller, kind) for controller, kinds in act.answers.items() for kind in kinds]
    for controller, kind in promised:
        assert kind in emits[controller]
    steps = [step.kind for step in plan.expected]
    order = [steps.index(kind) for _, kind in promised]
    assert order == sorted(order)
    announced = {kind for _, kind in promised}
    assert {step.kind for step in plan.expected if issubclass(step.kind, Decision)} <= announced
    assert plan.least_seconds <= demonstration.WAIT_SECONDS


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.scenario)
def test_commands_and_pages_exist(act: Act) -> None:
    for name, *words in act.commands:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        command.make_context(name, list(words), parent=click.Context(main, obj={"run_dir": "x", "config_file": None}))
    path, _, query = act.page.partition("?")
    routes = [route.path.replace("{key}", act.key) for page in PAGES for route in page.routes]
    assert path in routes
    if path == "/events":
        chosen = EventFilter.of(QueryParams(query))
        assert chosen.types, "the page understands the query"
        assert {kind.event_type for kinds in act.answers.values() for kind in kinds} <= chosen.types
    else:
        assert not query


class Told:
    """The texts and commands of a demonstration, whose commands end with ``codes``."""

    def __init__(self, *codes: int) -> None:
        self.texts, self.commands, self._codes = list[str](), list[Sequence[str]](), [*codes]

    async def run(self, command: Sequence[str]) -> int:
        self.commands.append(command)
        return self._codes.pop(0)

    async def play(self, monkeypatch: pytest.MonkeyPatch, **options: bool) -> "Told":
        monkeypatch.setattr(demonstration, "READING_SECONDS", 0.0)
        await Demonstration(locate_run("demo"), ADDRESS, **options).play(self.texts.append, self.run)
        return self


async def test_each_act_is_announced_played_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    told = await Told(0, 0, 0, 0).play(monkeypatch)
    first, *acts, last = told.texts
    assert "4 acts" in first
    for number, act in enumerate(ACTS):
        announced, waits, explained = (" ".join(text.split()) for text in acts[3 * number : 3 * number + 3])
        assert f"Act {number + 1} of 4, 0:00: {act.title} Planted: {act.planted} Watch: {act.watch}" in announced
        assert all(controller in announced for controller in act.answers)
        assert f"{ADDRESS.rstrip('/')}{act.page}" in announced
        assert waits == f"Waiting for {act.waits}."
        assert explained == f"Why: {act.explained}"
        assert " ".join(told.commands[number]).partition(" scenario ")[2].startswith(f"{act.scenario} {act.key} ")
    assert "4 of 4 troubles were noticed" in last
    assert "flyball --run demo up" in last
    assert "flyball --run demo dashboard" in last


async def test_an_act_without_answer_is_named_and_the_next_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    told = await Told(LATE, 0, 1, 0).play(monkeypatch)
    assert len(told.commands) == len(ACTS)
    late, unready = (" ".join(told.texts[place].split()) for place in (3, 9))
    again = "To try it again in a run that is running: flyball --run demo scenario {0.scenario} {0.key}"
    assert late.startswith("Not seen: A step did not come within 240 s")
    assert late.endswith(again.format(ACTS[0]))
    assert unready.startswith("Not seen: Nothing was planted, for the reason above.")
    assert "2 of 4 troubles were noticed" in told.texts[-1]


async def test_as_json_each_text_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    told = await Told(0, 0, 0, 0).play(monkeypatch, as_json=True)
    assert json.loads(told.texts[1])["Planted"] == ACTS[0].planted
    assert all("--json" in command for command in told.commands)


class TestPreparing:
    def test_folder_of_its_own_gets_the_settings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert prepare_demonstration(locate_run("run"), named=False).folder.path == Path("demo")
        assert (tmp_path / "demo" / "flyball.toml").read_text() == settings_text()
        assert not (tmp_path / "run").exists()
        assert prepare_demonstration(locate_run("mine"), named=True).folder.path == Path("mine")

    def test_settings_that_are_there_are_kept(self, tmp_path: Path) -> None:
        (tmp_path / "flyball.toml").write_text("seed = 9\n")
        assert prepare_demonstration(locate_run(tmp_path), named=True).load().run.seed == 9

    def test_run_is_kept_free_of_planted_troubles(self, tmp_path: Path) -> None:
        write_journal(tmp_path / "journal.sqlite", recording().events)
        again = invoke("up", "--profile", "demo", run=tmp_path)
        refused(again, 2, "There is a run in", f"flyball --run {tmp_path}2 up --profile demo")
        assert not (tmp_path / "flyball.toml").exists()

    @pytest.mark.parametrize("given", [{"config": ("hex7_2p",)}, {"role": "head"}])
    def test_options_of_other_runs_are_refused(self, given: dict[str, object]) -> None:
        refuse_options(config=(), role=None)
        with pytest.raises(click.UsageError, match=f"leave --{next(iter(given))} out"):
            refuse_options(**given)

    def test_unwritable_folder_is_an_error_of_usage(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(FlyballError, match="cannot be written"):
            prepare_demonstration(locate_run(tmp_path / "file" / "x"), named=True)
