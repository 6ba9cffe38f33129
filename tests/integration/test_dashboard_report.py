"""The dashboard's report, of one run and of two, over HTTP."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import invoke, refused, told
from dashboards import TOKEN, caught_up, dashboard_of
from generated_run import generated, laptop, write_generated
from recorded_run import recording, write_journal
from starlette.testclient import TestClient

EVENTS = recording().events


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_journal(folder / "journal.sqlite", EVENTS)
    return folder


@pytest.fixture(scope="module")
def reader(run: Path) -> Iterator[TestClient]:
    """Return a client of a read-only dashboard."""
    with TestClient(dashboard_of(run), follow_redirects=False) as client:
        yield caught_up(client, len(EVENTS))


@pytest.fixture(scope="module")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    write_generated(folder / "journal.sqlite", tuple(generated(700, seed=3, settings=laptop(seed=5))))
    return folder


def test_report_covers_the_events_since_a_position(reader):
    """The first 8 events end with the promotion of the initial model."""
    counted = [re.search(r"([\d,]+) events", reader.get(f"/report{query}").text)[1] for query in ("", "?since=9")]
    assert counted == [str(len(EVENTS)), str(len(EVENTS) - 8)]
    assert 'value="9"' in reader.get("/report?since=9").text
    answer = reader.get("/report?since=yesterday")
    assert answer.status_code == 400
    assert "is not a time" in answer.text


def test_report_compares_with_the_run_given_at_the_start(run, other_run):
    with TestClient(dashboard_of(run, compared=other_run)) as client:
        while client.app.state.other.model.position < 700:
            time.sleep(0.01)
        caught_up(client, len(EVENTS))
        assert "/report/comparison" in client.get("/report").text
        answer = client.get("/report/comparison?run=/etc&compare=/etc")
    assert not re.search(r"<script(?! src=)|<style| style=| on\w+=", answer.text)
    expected = told(invoke("report", run, other_run, "--json"))
    for config in expected["configs"]:
        assert f"<figcaption>{config['key']}</figcaption>" in answer.text
    assert re.search(r'<th scope="row">seed<td>0<td>5</tr>', answer.text)
    assert len(re.findall(r"<polyline", answer.text)) == sum(
        bool(points) for side in "ab" for points in expected[side]["ratings"].values()
    )
    text = answer.text.replace("<wbr>", "")
    for counts in expected["decided"]:
        numbers = "".join(f'<td class="n">{counts[side]:,}' for side in "ab")
        assert f"{counts['by']}<td>{counts['event']}{numbers}" in text


def test_comparison_is_refused_without_another_run(reader):
    answer = reader.get("/report/comparison")
    assert (answer.status_code, "dashboard --compare" in answer.text) == (400, True)
    assert 'href="/report/comparison"' not in reader.get("/report").text


def test_comparison_needs_the_token_where_reading_does(run, other_run):
    with TestClient(dashboard_of(run, TOKEN, private=True, compared=other_run), follow_redirects=False) as client:
        assert "Comparison" not in client.get("/report/comparison").text


@pytest.mark.parametrize(("words", "code", "why"), [("same", 2, "are the same run"), ("none", 3, "There is no run in")])
def test_run_that_cannot_be_compared_ends_the_start(run, tmp_path, words, code, why):
    other = run if words == "same" else tmp_path
    refused(invoke("dashboard", "--port", 0, "--compare", other, run=run), code, why)
