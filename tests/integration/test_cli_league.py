"""``flyball league`` on a recorded run, and on invented games."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke, refused, succeeded
from golden_runs import load
from independent_games import of_games
from leagues import checkpoint, league_of, meet, model
from recorded_run import KEY, Recording, write_journal

from flyball.app.config import RunSettings
from flyball.app.events import EloUpdated, EvaluationCompleted, RunConfigured
from flyball.app.league.document import dump_league, load_league
from flyball.app.league.totals import total
from flyball.app.status.league import LeagueView
from flyball.app.store import LeagueFile


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_journal(tmp_path / "journal.sqlite", load("recorded"))
    return tmp_path


def league(run: Path, *words: str) -> Result:
    return invoke("league", *words, run=run)


def test_league_shows_members_and_matrix(run: Path) -> None:
    shown = succeeded(league(run))
    assert "tic_tac_toe_2p" in shown.stdout
    assert "connect_four_2p" in shown.stdout
    assert " bot" in shown.stdout
    assert "current" in shown.stdout
    views = json.loads(league(run, "connect_four_2p", "--json").stdout)
    assert list(views) == ["connect_four_2p"]
    view = views["connect_four_2p"]
    members = view["members"]
    assert sum(member["champion"] for member in members) == 1
    assert sum(pick["probability"] for pick in view["matchmaking"]) == pytest.approx(1)
    assert sum(member["met"] for member in members) <= 1 + 1e-9
    matrix = view["matrix"]
    assert len(matrix) == len(members)
    for row in range(len(members)):
        for column in range(len(members)):
            assert matrix[row][row] is None
            if matrix[row][column] is not None and row != column:
                assert matrix[row][column] + matrix[column][row] == pytest.approx(1)


def test_league_shows_the_latest_ratings(run: Path) -> None:
    members = json.loads(league(run, "connect_four_2p", "--json").stdout)["connect_four_2p"]["members"]
    told, bounded = {"random": 0.0}, set[str]()
    for event in load("recorded"):
        if event.subject == "connect_four_2p" and isinstance(event.data, EvaluationCompleted):
            told[event.data.model] = told.get(event.data.model, event.data.elo)
        elif event.subject == "connect_four_2p" and isinstance(event.data, EloUpdated):
            told |= {one.agent: one.elo for one in event.data.ratings}
            bounded -= {one.agent for one in event.data.ratings}
            bounded |= {one.agent for one in event.data.ratings if one.bound}
    assert any(member["kind"] == "checkpoint" for member in members)
    for member in members:
        assert member["elo"] == told[member["agent"]]
        if member["agent"] in bounded:  # everybody is so much stronger or weaker that only a bound is known
            assert member["interval"] is None
        else:
            lower, upper = member["interval"]
            assert lower <= member["elo"] <= upper


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_a_league_is_drawn(run: Path, tmp_path: Path, suffix: str) -> None:
    path, again = (tmp_path / f"{name}{suffix}" for name in ("league", "again"))
    assert league(run, "connect_four_2p", "--plot", str(path)).exit_code == 0
    assert path.stat().st_size > 5_000
    assert league(run, "connect_four_2p", "--plot", str(again)).exit_code == 0
    assert path.read_bytes() == again.read_bytes()


def test_where_nothing_can_be_written_the_place_is_named(run: Path, tmp_path: Path) -> None:
    done = league(run, "connect_four_2p", "--export", str(tmp_path / "nowhere" / "league.json"))
    assert done.exit_code == 2
    assert "league.json" in done.stderr


def test_an_exported_league_is_taken_over_into_a_registry_once(run: Path, tmp_path: Path) -> None:
    path, registry = tmp_path / "league.json", tmp_path / "shared" / "league.json"
    words = ("connect_four_2p", "--import", str(path), "--registry", str(registry))
    assert league(run, "connect_four_2p", "--export", str(path)).exit_code == 0
    first = succeeded(league(run, *words))
    known, about = load_league(path.read_bytes(), path.name)
    shared = LeagueFile(registry, about.run_name, "connect_four_2p").read()
    assert (shared.agents, shared.games) == (known.agents, known.games)
    assert known.champion is not None
    assert shared.champion == known.champion, "be it a member or not"
    assert set(json.loads(first.stdout)["new"]) == {*known.agents}
    written = registry.read_bytes()
    assert json.loads(league(run, *words).stdout)["new"] == []
    assert registry.read_bytes() == written


def test_what_a_registry_knows_already_stays(run: Path, tmp_path: Path) -> None:
    path, registry = tmp_path / "league.json", tmp_path / "shared.json"
    mine = meet(league_of(checkpoint(1, 50.0), checkpoint(2, 70.0)), model(1), model(2), 10, 3)
    theirs = league_of(checkpoint(2, 999.0), checkpoint(3, 90.0))
    theirs = meet(meet(theirs, model(1), model(2), 500, 0), model(2), model(3), 20, 8)
    mine, theirs = (one.replace(champion=model(n)) for one, n in ((mine, 1), (theirs, 3)))
    LeagueFile(registry, "theirs", "connect_four_2p").update(lambda _: mine)
    path.write_bytes(dump_league(theirs, "theirs", "connect_four_2p"))
    done = league(run, "connect_four_2p", "--import", str(path), "--registry", str(registry))
    assert json.loads(done.stdout) == {"agents": 4, "new": [model(3)], "registry": str(registry)}
    after = LeagueFile(registry, "theirs", "connect_four_2p").read()
    assert after.agents[model(2)].elo == 70.0
    assert after.champion == model(1)
    assert after.between(model(1), model(2)) == mine.between(model(1), model(2))
    assert after.between(model(2), model(3)) == theirs.between(model(2), model(3))


@pytest.mark.parametrize(
    ("text", "config", "said"),
    [
        (b"{}", "connect_four_2p", "is not a league"),
        (dump_league(league_of(), "run", "hex7_2p"), "connect_four_2p", "league of hex7_2p, not of connect_four_2p"),
        (dump_league(league_of(), "run", "x_2p").replace(b'"elo": 0.0', b'"elo": 1.0'), "x_2p", "another checksum"),
    ],
)
def test_a_file_that_is_no_such_league_is_not_taken_over(run: Path, tmp_path: Path, text, config, said) -> None:
    path, registry = tmp_path / "league.json", tmp_path / "shared.json"
    path.write_bytes(text)
    refused(league(run, config, "--import", str(path), "--registry", str(registry)), 2, said)
    assert not registry.exists()


def test_refused_registry_is_left_unchanged_and_without_a_lock(run: Path, tmp_path: Path) -> None:
    path, registry = tmp_path / "league.json", tmp_path / "shared" / "other.json"
    registry.parent.mkdir()
    registry.write_text("{}")
    path.write_bytes(dump_league(league_of(), "run", "connect_four_2p"))
    refused(league(run, "connect_four_2p", "--import", str(path), "--registry", str(registry)), 2, "is not a league")
    assert [(one.name, one.read_text()) for one in registry.parent.iterdir()] == [("other.json", "{}")]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["x_2p", "--registry", "r.json"], 2, "Say all three"),
        (
            ["x_2p", "--import", __file__, "--registry", "r.json", "--plot", "x.svg"],
            2,
            "--import can't be combined with --plot",
        ),
        (["hex9_9p"], 4, "There is no configuration"),
        (["hex7_2p"], 4, "does not play hex7_2p. hint: It plays connect_four_2p, tic_tac_toe_2p."),
        (["--plot", "x.svg"], 2, "Say of which configuration"),
        (["--audit", "20"], 2, "which configuration"),
        (["connect_four_2p", "--plot", "x.jpg"], 2, "x.jpg: end it with .svg, .png or .pdf"),
        (["connect_four_2p", "--plot", "/nowhere/x.svg"], 2, "/nowhere/x.svg cannot be written"),
    ],
)
def test_what_cannot_be_shown_is_said(run: Path, words: list[str], code: int, said: str) -> None:
    refused = league(run, *words)
    assert refused.exit_code == code
    assert said in " ".join(refused.stderr.split())


def test_a_run_without_a_league_is_told_from_no_run(tmp_path: Path) -> None:
    refused(league(tmp_path, KEY), 3, f"There is no run in {tmp_path}")
    young = Recording([])
    young.add(RunConfigured(run_id="1", settings=RunSettings().model_dump(mode="json")))
    write_journal(tmp_path / "journal.sqlite", young.events)
    refused(league(tmp_path, KEY), 4, f"{KEY} has no league in the run", "look again")
    assert (league(tmp_path, "--json").stdout, league(tmp_path).exit_code) == ("{}\n", 0)


def circle(names: list[str], games: int) -> LeagueView:
    """Return a league of three that beat each other in a circle. Each wins seven of ten games against the next."""
    won, lost = 7 * games // 10, 3 * games // 10
    pairs = zip(names, names[1:] + names[:1], strict=True)
    return LeagueView(pairs=total(of_games(one, other, won, 0, lost) for one, other in pairs))


def test_a_planted_circle_is_found() -> None:
    names = [model(step) for step in (1, 2, 3)]
    cycle = circle(names, 200).cycle()
    assert cycle is not None
    assert set(cycle.agents) == set(names)
    assert LeagueView(pairs=(of_games(names[0], names[1], 140, 0, 60),)).cycle() is None


@pytest.mark.parametrize(("games", "bound"), [(200, "p < 1.6e-07"), (1_000_000, "p < 1e-300")])
def test_a_circle_is_shown_with_a_chance_above_nought(
    run: Path, monkeypatch: pytest.MonkeyPatch, games: int, bound: str
) -> None:
    view = circle([model(step) for step in (1, 2, 3)], games)
    monkeypatch.setattr("flyball.app.api.leagues.leagues_in", lambda *_: {KEY: view})
    assert bound in " ".join(league(run).stdout.split())
