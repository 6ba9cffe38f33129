"""``flyball report``: text, JSON, and a page in one file."""

import json
from pathlib import Path

import pytest
from commands import invoke, succeeded, told
from generated_run import generated, write_generated

import flyball

EVENTS = tuple(generated(1500, seed=2))
PROMOTED = sum(event.data.event_name == "MODEL_PROMOTED" and event.data.previous is not None for event in EVENTS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_generated(folder / "journal.sqlite", EVENTS)
    return folder


def test_text_and_json_agree(run: Path) -> None:
    made = told(invoke("report", "--json", run=run))
    text = succeeded(invoke("report", run=run)).stdout
    assert made["decided"]["ModelLifecycleCoordinator"]["MODEL_PROMOTED"] == PROMOTED
    assert sum(config["promotions"] for config in made["configs"]) == PROMOTED, "without initial models"
    assert f"MODEL_PROMOTED {PROMOTED}" in text
    rows = [line.split() for line in text.splitlines() if line]
    for config in made["configs"]:
        trained, steered = (row for row in rows if row[0] == config["key"])
        names = ("trainings", "promotions", "rejections", "dropped", "awaiting", "rollbacks")
        assert trained[-6:] == [str(config[name]) for name in names]
        assert steered[1:3] == [str(config[name]) for name in ("stalls", "boosts")]
        assert steered[6] == f"{config['asked']:.0%}", "after weight, arrow and weight"


def test_since_a_position_covers_what_followed(run: Path) -> None:
    assert told(invoke("report", "--json", "--since", "1001", run=run))["events"] == 500
    after_all = told(invoke("report", "--json", "--since", "9999", run=run))
    assert {config["worker_time"]["training"] for config in after_all["configs"]} == {0.0}
    assert "Nothing has happened" in succeeded(invoke("report", "--since", "9999", run=run)).stdout


def test_page_is_one_file_that_loads_nothing(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    succeeded(invoke("report", "--html", str(page), run=run), "Wrote")
    text = page.read_text(encoding="utf-8")
    assert f"MODEL_PROMOTED {PROMOTED}" in text
    for config in told(invoke("report", "--json", run=run))["configs"]:
        assert f'data-label="Asked">{config["asked"]:.0%}\n' in text
    assert not any(word in text for word in ("src=", "href=", "http://", "url(", "@import"))


def test_run_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert invoke("report", run=tmp_path).exit_code != 0


async def test_api_gives_what_the_commands_show(run: Path) -> None:
    with flyball.connect(run) as files:
        report = files.report()
        controllers = {controller.name: controller for controller in files.controllers("tic_tac_toe_2p")}
    assert json.loads(report.to_json()) == told(invoke("report", "--json", run=run))
    assert controllers["ModelLifecycleCoordinator"].knobs == ("promotion", "rollback")
    async with flyball.connect_async(run) as files:
        later = await files.report(since=1001)
        assert json.loads(later.to_json()) == told(invoke("report", "--json", "--since", "1001", run=run))
        assert [controller.name for controller in await files.controllers()] == list(controllers)
