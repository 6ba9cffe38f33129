"""``flyball init``: what it writes can be used, and nothing is overwritten."""

import json
import tomllib
from configparser import ConfigParser
from getpass import getuser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flyball import app
from flyball.app.bus.keys import KeyList, read_secret
from flyball.app.cli import main
from flyball.app.config.loading import load
from flyball.daemons.registry import MACHINE_ROLES, names_of

ROOT = Path(__file__).parents[2]
KEY = "ab" * 32
JOURNAL = "postgresql:///loop"
SHARED = ("--journal", JOURNAL, "--store", "s3://bucket/run")


def init(*words: object) -> Result:
    return CliRunner().invoke(main, ["init", *map(str, words)])


def made(*words: object) -> dict[str, Any]:
    done = init(*words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_head_gets_settings_keys_and_both_roles_services(tmp_path: Path) -> None:
    written = made("--role", "head", "--head", "10.0.0.1", "--node", "alpha", tmp_path / "run")
    deployment = load(tmp_path / "run").deployment
    assert (deployment.node, deployment.endpoint) == ("alpha", "tcp://10.0.0.1:7400")
    assert (deployment.keys.secret, deployment.keys.allowed) == (Path("keys/alpha.secret"), Path("keys/allowed"))
    (key,) = KeyList.read(tmp_path / "run/keys/allowed").keys
    assert (key.name, key.role, key.public) == ("alpha", "head", written["public"])
    assert read_secret(Path(written["secret"])).public == written["public"]
    names = {Path(path).name for path in written["services"]}
    assert names == {path.name for path in (ROOT / "deploy/systemd").iterdir()}


def test_worker_has_the_head_s_key_and_prints_how_to_be_admitted(tmp_path: Path) -> None:
    written = made("--role", "worker", "--head", "[::1]:7500", "--head-key", KEY, "--node", "beta", tmp_path / "run")
    deployment = load(tmp_path / "run").deployment
    assert (deployment.node, deployment.endpoint) == ("beta", "tcp://[::1]:7500")
    assert deployment.keys.broker == KEY
    commands = [command for commands in written["next"].values() for command in commands]
    assert f"flyball --run {tmp_path}/run keys authorize beta worker {written['public']}" in commands
    names = {Path(path).name for path in written["services"]}
    assert names == {"flyball@.service", "flyball-worker@.service", "flyball-worker.target"}


def test_units_name_folder_user_node_and_program(tmp_path: Path) -> None:
    run = tmp_path / "run"
    written = init("--role", "head", "--head", "h", "--node", "alpha", "--store", "/mnt/store", run)
    assert written.exit_code == 0
    for name in ("flyball@.service", "flyball-worker@.service", "flyball-dashboard.service"):
        unit = (run / "systemd" / name).read_text()
        lines = [line for line in unit.splitlines() if not line.startswith("#")]
        assert f"User={getuser()}" in lines
        assert {f"ReadWritePaths={run} /mnt/store", f"RequiresMountsFor={run} /mnt/store"} <= set(lines)
        assert {f"Environment=FLYBALL_RUN={run}", "Environment=FLYBALL_DEPLOYMENT__NODE=alpha"} <= set(lines)
        (start,) = (line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart="))
        assert Path(start.split()[0]).is_file()
        assert not {part for part in ("/opt/flyball", "/var/lib/flyball", "%l") if part in "".join(lines)}


def test_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Init warns, because the store may be mounted later; config check fails."""
    store, run = tmp_path / "store", tmp_path / "run"
    warned = init("--role", "worker", "--head", "h", "--head-key", KEY, "--store", store, run)
    assert (warned.exit_code, f"WARNING: The store's folder {store} does not exist" in warned.stderr) == (0, True)

    def check() -> Result:
        return CliRunner().invoke(main, ["--run", str(run), "config", "check"])

    refused = check()
    assert (refused.exit_code, "Mount it" in refused.stderr) == (2, True)
    store.write_text("no folder")
    refused = check()
    assert (refused.exit_code, f"cannot write to the store's folder {store}" in refused.stderr) == (2, True)
    assert f"chown {getuser()}: {store}" in " ".join(refused.stderr.split())
    store.unlink()
    store.mkdir()
    fine = check()
    assert (fine.exit_code, "What is played is in the head's" in fine.stderr) == (0, True)
    assert not any(store.iterdir())


def test_store_is_a_setting_and_handed_on_to_workers(tmp_path: Path) -> None:
    written = made("--role", "head", "--head", "h", "--store", "s3://bucket/flyball", tmp_path / "run")
    settings = tomllib.loads((tmp_path / "run/flyball.toml").read_text())
    assert settings["deployment"]["store"] == "s3://bucket/flyball"
    assert "--store s3://bucket/flyball" in " ".join(written["next"]["On each worker"])
    assert f"ReadWritePaths={tmp_path}/run\n" in (tmp_path / "run/systemd/flyball@.service").read_text()


@pytest.mark.parametrize("role", MACHINE_ROLES)
def test_supervisors_files_name_folder_and_program(tmp_path: Path, role: str) -> None:
    key = ("--head-key", KEY) if role == "worker" else ()
    written = made("--role", role, "--head", "h", *key, "--services", "supervisor", tmp_path / "run")
    text = (tmp_path / f"run/supervisor/{role}.conf").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith(";"))
    assert "ENV_FLYBALL_RUN" not in lines
    assert f"file={tmp_path}/run/supervisord-{role}.sock" in lines
    assert "command=python3" not in lines
    assert (tmp_path / "run/logs").is_dir()
    start = written["next"]["Here, to record, decide and also run jobs" if role == "head" else "Then here"]
    assert f"supervisord -c {tmp_path}/run/supervisor/{role}.conf" in start


def test_second_head_s_supervisor_has_the_head_s_programs(tmp_path: Path) -> None:
    first_head(tmp_path / "one", "--services", "supervisor")
    words = ("--role", "standby", "--first-head", tmp_path / "one", "--node", "beta", "--services", "supervisor")
    following = made(*words, tmp_path / "two")["next"]
    assert following["Here, to take over when the other head ends"] == [
        f"supervisord -c {tmp_path}/two/supervisor/head.conf"
    ]
    one, two = ((tmp_path / name / "supervisor/head.conf").read_text() for name in ("one", "two"))
    assert two == one.replace(f"{tmp_path}/one", f"{tmp_path}/two")


def test_head_that_runs_jobs_too_has_one_distributor(tmp_path: Path) -> None:
    made("--role", "head", "--head", "h", "--services", "supervisor", tmp_path)
    programs = {}
    for role in MACHINE_ROLES:
        parser = ConfigParser(interpolation=None)
        parser.read(tmp_path / f"supervisor/{role}.conf")
        programs[role] = [name.removeprefix("program:") for name in parser.sections() if name.startswith("program:")]
        assert {*parser[f"group:{role}"]["programs"].split(",")} == {*programs[role]} - {"broker"}
    assert sorted(programs["head"] + programs["worker"]) == sorted([*names_of(None), "dashboard"])


def first_head(folder: Path, *words: object) -> dict[str, Any]:
    """Make the first of two heads."""
    addresses = ("--head", "10.0.0.1", "--standby", "10.0.0.2:7500")
    return made("--role", "head", *addresses, *SHARED, "--node", "alpha", *words, folder)


def test_second_head_has_the_settings_of_the_first(tmp_path: Path) -> None:
    """Only the addresses are exchanged, and the node. Both have one key, because clients expect one broker's."""
    written = first_head(tmp_path / "one")
    file = tmp_path / "one/flyball.toml"
    file.write_text('configs = ["hex7_2p"]\n' + file.read_text() + '[deployment.traces]\nendpoint = "http://h/"\n')
    second = made("--role", "standby", "--first-head", tmp_path / "one", "--node", "beta", tmp_path / "two")
    one, two = (load(tmp_path / name) for name in ("one", "two"))
    own = {"node": "beta", "endpoint": "tcp://10.0.0.2:7500", "other_head": "tcp://10.0.0.1:7400"}
    assert two.deployment == one.deployment.replace(**own)
    assert (one.deployment.endpoint, one.deployment.other_head) == (own["other_head"], own["endpoint"])
    assert one.deployment.journal.url == JOURNAL
    assert [config.key for config in two.run.configs] == ["hex7_2p"]
    assert two.run == one.run, "otherwise each takeover would record other settings"
    assert read_secret(Path(second["secret"])) == read_secret(Path(written["secret"]))
    assert KeyList.read(tmp_path / "two/keys/allowed") == KeyList.read(tmp_path / "one/keys/allowed")
    units = {Path(path).name for path in second["services"]}
    assert units == {Path(path).name for path in written["services"]}
    assert "Environment=FLYBALL_DEPLOYMENT__NODE=beta" in (tmp_path / "two/systemd/flyball@.service").read_text()
    (start,) = second["next"]["Here, to take over when the other head ends"]
    assert start.endswith("systemctl enable --now --no-block flyball-head.target"), (
        "its broker waits, perhaps for months"
    )


def test_first_of_two_heads_prints_commands_for_the_others(tmp_path: Path) -> None:
    written = first_head(tmp_path / "one")
    (start,) = written["next"]["Here, to record and decide"]
    assert start.endswith("systemctl enable --now flyball-head.target")
    copy, standby, _ = written["next"]["Then on the second head"]
    assert copy.startswith(f"mkdir first && scp -pr {getuser()}@10.0.0.1:{tmp_path}/one/flyball.toml ")
    assert standby == f"flyball init --role standby --first-head first {tmp_path}/one"
    (command,) = written["next"]["On each worker"]
    made(*command.replace(str(tmp_path / "one"), str(tmp_path / "worker")).split()[2:])
    deployment = load(tmp_path / "worker").deployment
    assert (deployment.endpoint, deployment.other_head) == ("tcp://10.0.0.1:7400", "tcp://10.0.0.2:7500")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("other_head", "# other_head", "does not name the addresses of two heads"),
        ("journal = ", "# journal = ", "each head would have a journal of its own"),
        ("store = ", "# store = ", "each head would have models of its own"),
        ('"keys/alpha.secret"', '"keys/other.secret"', "cannot be read"),
        ('"alpha"', '"beta"', "The first head is called beta, too"),
        ("[deployment]\n", "[deployment] # mine\n", "cannot be rewritten for a second head"),
        ("[deployment.keys]", "[deployment.processes]\ntraining = 0\n[deployment.keys]", "training"),
    ],
)
def test_settings_that_no_second_head_can_use_are_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    first_head(tmp_path / "one")
    file = tmp_path / "one/flyball.toml"
    file.write_text(file.read_text().replace(old, new))
    error = init("--role", "standby", "--first-head", tmp_path / "one", "--node", "beta", tmp_path / "two")
    assert (error.exit_code, why in " ".join(error.stderr.split())) == (2, True), error.stderr
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("there", ["flyball.toml", "keys/alpha.secret", "keys/allowed"])
def test_second_head_overwrites_nothing(tmp_path: Path, there: str) -> None:
    first_head(tmp_path / "one")
    path = tmp_path / "two" / there
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    error = init("--role", "standby", "--first-head", tmp_path / "one", "--node", "beta", tmp_path / "two")
    assert (error.exit_code, f"{path} exists already" in error.stderr) == (2, True), error.stderr
    assert [one for one in (tmp_path / "two").rglob("*") if one.is_file()] == [path]


@pytest.mark.parametrize("there", ["flyball.toml", "keys/alpha.secret", "systemd/flyball-head.target"])
def test_existing_file_is_not_overwritten_and_nothing_is_written(tmp_path: Path, there: str) -> None:
    path = tmp_path / there
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    refused = init("--role", "head", "--head", "h", "--node", "alpha", tmp_path)
    assert (refused.exit_code, f"{path} exists already" in refused.stderr) == (2, True)
    assert path.read_text() == "mine"
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [path]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--role", "worker", "--head", "h"), "needs --head-key"),
        (("--role", "head", "--head", "h", "--head-key", KEY), "takes no --head-key"),
        (("--role", "head"), "needs --head"),
        (("--role", "worker", "--head", "h", "--head-key", KEY, "--journal", JOURNAL), "takes no --journal"),
        (("--role", "standby"), "needs --first-head"),
        (("--role", "standby", "--first-head", "f", "--standby", "h"), "takes no --standby"),
        (("--role", "standby", "--first-head", "/none"), "cannot be read"),
        (("--role", "head", "--head", "h", "--standby", "g", "--store", "/srv"), "Two heads share a journal"),
        (("--role", "head", "--head", "h", "--standby", "g", "--journal", JOURNAL), "PostgreSQL, and a store"),
        (("--role", "head", "--head", "h", "--journal", "mysql://db/a"), "postgresql://HOST/DATABASE"),
        (("--role", "head", "--head", "h", "--journal", f"{JOURNAL}?password=a"), "has no password"),
        (("--role", "head", *SHARED, "--head", "h", "--standby", "h:7400"), "have the address h:7400"),
        (("--role", "worker", "--head", "h", "--head-key", KEY, "--standby", "h"), "have the address h:7400"),
        (("--role", "worker", "--head", "h", "--head-key", "abc"), "not a public key"),
        (("--role", "head", "--head", "h:99999"), "no address"),
        (("--role", "head", "--head", "tcp://h"), "no address"),
        (("--role", "head", "--head", "h", "--node", "a b"), "cannot name a key"),
    ],
)
def test_arguments_that_cannot_work_are_refused(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    error = init(*words, tmp_path / "run")
    assert (error.exit_code, why in error.stderr) == (2, True), error.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("run", "store"), [("my run", "/srv/store"), ("run", "/srv/my store")])
def test_folder_whose_name_units_would_split_is_refused(tmp_path: Path, run: str, store: str) -> None:
    error = init("--role", "head", "--head", "h", "--store", store, tmp_path / run)
    assert (error.exit_code, "cannot be named in service files" in error.stderr) == (2, True)
    assert not any(tmp_path.iterdir())


def test_init_finds_service_files_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["deploy"] == "flyball/app/deploy"
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "deploy").symlink_to(ROOT / "deploy")
    monkeypatch.setattr(app, "__file__", str(tmp_path / "app" / "__init__.py"))
    assert init("--role", "head", "--head", "h", tmp_path / "run").exit_code == 0
