"""The dashboard shows every page for any events that validation accepts."""

import time
from pathlib import Path

import pytest
from dashboards import dashboard_of
from fuzzed_events import CONFIGS, Fuzzer
from recorded_run import write_journal
from starlette.testclient import TestClient

from flyball.app.events import CATALOGUE

EACH = 8
PAGES = (
    "/configuration/{}",
    "/configuration/{}/state",
    "/overview/card/{}",
    "/league/{}",
    "/training/{}",
    "/curves/ratings/{}",
    "/curves/metrics/{}",
    "/events?config={}",
)


@pytest.mark.parametrize("seed", range(2))
def test_dashboard_shows_fuzzed_events_on_every_page(seed, tmp_path: Path):
    fuzzer = Fuzzer(seed)
    events = list(fuzzer.events(fuzzer.payloads(CATALOGUE, EACH)))
    write_journal(tmp_path / "journal.sqlite", events)
    with TestClient(dashboard_of(tmp_path)) as client:
        feed = client.app.state.feed
        while feed.model.position < len(events):
            time.sleep(0.02)
        paths = ["/", "/events", "/logs", "/overview/summary", "/overview/daemons", "/overview/notable"]
        paths += [page.format(config.key) for page in PAGES for config in CONFIGS]
        paths += [f"/event?id={event.id}" for event in events[:: len(events) // 40]]
        paths += [f"/why?id={event.id}" for event in events[:: len(events) // 10]]
        for path in paths:
            assert client.get(path).status_code == 200, path
