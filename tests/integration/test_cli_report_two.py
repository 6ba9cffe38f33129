"""``flyball report A B``: two runs side by side, as text, JSON, a page in one file, and a Python object."""

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from commands import invoke, refused, succeeded, told
from generated_run import generated, laptop, write_generated
from recorded_run import write_journal

import flyball
from flyball.app.config import GAMES
from flyball.app.events import EvaluationCompleted, Event, ModelPromoted, SelfplayComplete

BOTH = ("tic_tac_toe_2p", "connect_four_2p")
EVENTS = {
    "alpha": tuple(generated(1500, seed=2)),
    "beta": tuple(
        generated(
            1000,
            seed=3,
            settings=laptop(
                seed=5,
                feedback={"stall": {"velocity": 3.0}},
                configs=[
                    GAMES[BOTH[0]].model_dump(),
                    GAMES[BOTH[1]].replace(learning_rate=3e-4).model_dump(),
                    GAMES["hearts_4p"].model_dump(),
                ],
            ),
        )
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name, events in EVENTS.items():
        (folder / name).mkdir()
        write_generated(folder / name / "journal.sqlite", events)
    return folder / "alpha", folder / "beta"


@pytest.fixture(scope="module")
def compared(runs: tuple[Path, Path]) -> dict:
    return told(invoke("report", *runs, "--json"))


def ratings(events: Iterable[Event], key: str) -> list[Event]:
    rated = (event for event in events if event.subject == key and isinstance(event.data, EvaluationCompleted))
    return [event for event in rated if event.data.purpose == "rating"]


def table(text: str, heading: str) -> dict[str, list[str]]:
    """Return the cells of a table's rows by their first one; the table ends at an empty line."""
    lines = text[text.index(heading) :].split("\n\n", maxsplit=1)[0].splitlines()[1:]
    rows = (re.split(r"\s{2,}", line.strip()) for line in lines)
    return {name: cells for name, *cells in rows}


def test_totals_and_gains_are_those_of_the_events(compared: dict) -> None:
    for side, events in zip("ab", EVENTS.values(), strict=True):
        made = compared[side]["report"]
        played = [event.data.shard for event in events if isinstance(event.data, SelfplayComplete)]
        assert sum(config["games"] for config in made["configs"]) == sum(shard.games for shard in played)
        assert sum(config["rows"] for config in made["configs"]) == sum(shard.rows for shard in played)
        assert made["nodes"] == ["laptop"]
        for config in compared["configs"]:
            rated = [event.data.elo for event in ratings(events, config["key"])]
            assert config[f"gained_{side}"]["elo"] == pytest.approx(config[side]["elo"] - rated[0])
    for config in compared["configs"]:
        gained = config["gained_b"]["elo"] - config["gained_a"]["elo"]
        assert config["difference"]["elo"] == pytest.approx(gained)
        squares = sum(config[side][name] ** 2 for side in "ab" for name in ("elo_stderr", "elo_before_stderr"))
        assert config["difference"]["stderr"] ** 2 == pytest.approx(squares)


def test_ratings_count_hours_from_each_runs_first_event(compared: dict) -> None:
    for side, events in zip("ab", EVENTS.values(), strict=True):
        assert set(compared[side]["ratings"]) == set(BOTH)
        for key, points in compared[side]["ratings"].items():
            since = [event.recorded_us - events[0].recorded_us for event in ratings(events, key)]
            assert [point["hours"] for point in points] == pytest.approx([us / 3.6e9 for us in since])


def test_what_one_run_alone_plays_is_only_named(compared: dict) -> None:
    assert [config["key"] for config in compared["configs"]] == list(BOTH)
    assert compared["only_a"] == ["breakthrough6_2p", "hex7_2p", "oh_hell_3p"]
    assert compared["only_b"] == ["hearts_4p"]
    assert not any("hearts" in setting["name"] for setting in compared["settings"])


def test_settings_that_differ_are_those_that_were_changed(compared: dict) -> None:
    assert {setting["name"]: (setting["a"], setting["b"]) for setting in compared["settings"]} == {
        "seed": ("0", "5"),
        "feedback.stall.velocity": (json.dumps(laptop().feedback.stall.velocity), "3.0"),
        "games.connect_four_2p.learning_rate": ("0.001", "0.0003"),
    }


def test_decisions_are_counted_by_controller_in_both(compared: dict) -> None:
    counts = {(one["by"], one["event"]): (one["a"], one["b"]) for one in compared["decided"]}
    promoted = [
        sum(isinstance(event.data, ModelPromoted) and event.data.previous is not None for event in events)
        for events in EVENTS.values()
    ]
    assert counts["ModelLifecycleCoordinator", "MODEL_PROMOTED"] == tuple(promoted)
    for number, side in enumerate("ab"):
        decided = compared[side]["report"]["decided"]
        assert sum(count[number] for count in counts.values()) == sum(sum(one.values()) for one in decided.values())


def test_text_fits_eighty_columns_and_agrees_with_json(runs: tuple[Path, Path], compared: dict) -> None:
    text = succeeded(invoke("report", *runs)).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("A: alpha\nB: beta\n")
    assert table(text, "\n   ")["events"] == ["1,500", "1,000"]
    strength, times = table(text, "Elo, ±"), table(text, "Seconds of workers")
    for config in compared["configs"]:
        difference = config["difference"]
        assert strength[config["key"]][2] == f"{difference['elo']:+.0f} ± {difference['stderr']:.0f}"
        assert times[config["key"]][0] == f"{sum(config['a']['worker_time'].values()):,.0f}"
    assert "Only in B: hearts_4p" in text
    assert "games.connect_four_2p.learning_rate: 0.001 → 0.0003" in text


def test_page_of_two_runs_draws_both_curves(runs: tuple[Path, Path], compared: dict, tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    succeeded(invoke("report", *runs, "--html", page), "Wrote")
    text = page.read_text(encoding="utf-8")
    assert not any(word in text for word in ("src=", "href=", "http://", "url(", "@import"))
    pictures = [ET.fromstring(one) for one in re.findall(r"<svg class=.*?</svg></svg>", text, re.DOTALL)]
    assert len(pictures) == len(BOTH)
    for key, picture in zip(BOTH, pictures, strict=True):
        for side in "ab":
            (line,) = (curve.find("polyline") for curve in picture.iter("g") if curve.get("class") == side)
            shown = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
            points = compared[side]["ratings"][key]
            assert len(shown) == len(points)
            highest = max(range(len(points)), key=lambda index: points[index]["elo"])
            assert shown[highest][1] == min(y for _, y in shown), "upwards is stronger"
            assert [x for x, _ in shown] == sorted(x for x, _ in shown)


def test_page_of_a_report_may_go_to_stdout(runs: tuple[Path, Path], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("report", "--html", "-"), ("report", *runs, "--html", "-")):
        shown = invoke(*words, run=runs[0] if len(words) == 3 else None)
        assert succeeded(shown).stdout.startswith("<!doctype html>")
        assert shown.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_python_compares_as_the_command_does(runs: tuple[Path, Path], compared: dict) -> None:
    with flyball.connect(runs[0]) as run:
        made = run.compare(runs[1])
    assert json.loads(made.to_json()) == compared
    assert "beta compared with alpha" in repr(made)
    frame = made.to_frame("ratings")
    assert len(frame) == sum(len(points) for side in "ab" for points in compared[side]["ratings"].values())
    assert made.to_frame()["difference_elo"].tolist() == [config["difference"]["elo"] for config in compared["configs"]]
    assert "games.connect_four_2p.learning_rate" in made._repr_html_()


async def test_python_compares_in_an_event_loop(runs: tuple[Path, Path], compared: dict) -> None:
    async with flyball.connect_async(runs[0]) as run:
        assert json.loads((await run.compare(runs[1])).to_json()) == compared


def test_folders_of_one_name_are_shown_with_their_paths(runs: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "alpha")
    made = told(invoke("report", runs[0], tmp_path / "alpha", "--json"))
    assert (made["a"]["name"], made["b"]["name"]) == (str(runs[0]), str(tmp_path / "alpha"))
    assert made["settings"] == []
    assert {config["difference"]["elo"] for config in made["configs"]} == {0.0}


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("A",), 2, "name two run folders; the report of one is flyball --run FOLDER report"),
        (("A", "B", "B"), 2, "name two run folders"),
        (("A", "nowhere"), 3, "There is no run in"),
        (("A", "A"), 2, "are the same run"),
        (("A", "B/../alpha"), 2, "are the same run"),
        (("A", "B", "--since", "1h"), 2, "--since is for the report of one run"),
        (("A", "B", "--run", "A"), 2, "--run names one run, and A B two"),
    ],
)
def test_what_cannot_be_compared_is_refused(runs: tuple[Path, Path], words, code: int, why: str) -> None:
    named = {"A": runs[0], "B": runs[1], "nowhere": runs[0] / "nowhere", "B/../alpha": runs[1] / "../alpha"}
    refused(invoke("report", *(named.get(word, word) for word in words)), code, why)


def test_run_from_the_environment_does_not_hinder(runs: tuple[Path, Path]) -> None:
    succeeded(invoke("report", *runs, env={"FLYBALL_RUN": str(runs[0])}))


def test_empty_run_compares_with_another(runs: tuple[Path, Path], tmp_path: Path) -> None:
    write_journal(tmp_path / "journal.sqlite", ())
    text = succeeded(invoke("report", tmp_path, runs[1])).stdout
    assert "Only in B: tic_tac_toe_2p" in text
    page = succeeded(invoke("report", tmp_path, runs[1], "--html", "-")).stdout
    assert "<svg" not in page
