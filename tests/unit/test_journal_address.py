"""URLs of journals: what is refused, and that no message shows a password."""

from pathlib import Path

import pytest
from commands import invoke, refused

from flyball.app.config.journal_address import check_url
from flyball.app.config.layers import BadSettings
from flyball.app.config.loading import load

URL = "postgresql://flyball@db.example/loop?sslmode=verify-full&sslrootcert=ca.pem"


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "postgres:///loop",
        "postgresql://localhost/loop",
        "postgresql://flyball@127.0.0.1:5433/loop?options=-csearch_path%3Drun1",
        "postgresql://[::1]:5432/loop",
        "postgresql://%2Fvar%2Frun%2Fpostgresql/loop",
        "postgresql:///loop?host=/run/postgresql",
        "postgresql://one,two/loop?sslmode=verify-ca",
        "postgresql://?service=loop",
    ],
)
def test_url_is_accepted(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://localhost/loop", "postgresql://HOST/DATABASE"),
        ("journal.sqlite", "postgresql://HOST/DATABASE"),
        ("postgresql://localhost", "names its database"),
        ("postgresql://flyball:hunter2@localhost/loop", "no password"),
        ("postgresql://localhost/loop?password=hunter2", "no password"),
        ("postgresql://db.example/loop", "db.example is another machine"),
        ("postgresql://db.example/loop?sslmode=require", "sslmode=verify-full"),
        ("postgresql://localhost,db.example/loop", "db.example is another machine"),
        ("postgresql:///loop?host=db.example", "db.example is another machine"),
        ("postgresql://localhost/loop?hostaddr=10.0.0.7", "10.0.0.7 is another machine"),
        ("postgresql://10.0.0.7:5432/loop", "10.0.0.7 is another machine"),
        ("postgresql://[fe80::1]:5432/loop", "fe80::1 is another machine"),
    ],
)
def test_url_is_refused_without_showing_a_password(url: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(f'deployment.journal = "{url}"')
    with pytest.raises(BadSettings) as bad:
        load(tmp_path)
    assert why in str(bad.value)
    assert "deployment.journal" in str(bad.value)
    assert "hunter2" not in str(bad.value)


def test_copy_refuses_such_a_url(tmp_path: Path) -> None:
    refused(invoke("journal", "copy", "postgresql://db.example/loop", tmp_path / "x"), 2, "another machine")


def test_url_is_short_for_a_table_that_other_layers_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flyball.toml").write_text(f'deployment.journal = "{URL}"')
    settings = load(tmp_path, {"deployment": {"journal": {"live_events": 7}}}).deployment.journal
    assert (settings.url, settings.live_events) == (URL, 7)
    monkeypatch.setenv("FLYBALL_DEPLOYMENT__JOURNAL", "postgresql:///other")
    loaded = load(tmp_path)
    assert loaded.deployment.journal.url == "postgresql:///other"
    assert loaded.origins["deployment.journal.url"] == "environment FLYBALL_DEPLOYMENT__JOURNAL"
