"""Loading settings: precedence, origins, and errors with remedies."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from flyball.app.config import (
    GAMES,
    LAPTOP,
    MATCHMAKING,
    PROFILES,
    BadSettings,
    Deployment,
    NetworkSettings,
    RunFolder,
    flatten,
    nest,
)
from flyball.app.config.loading import UnknownConfig, load, variable
from flyball.daemons.run_folder import MAX_SOCKET_PATH, UnsafeFolder, bus_endpoint


def write(folder: Path, text: str) -> Path:
    (folder / "flyball.toml").write_text(text)
    return folder


HEARTS = "configs = ['hearts_4p']\n"
PLACE = "games.hearts_4p."
VARIABLE = "FLYBALL_GAMES__HEARTS_4P__"


def test_layers_cover_those_below_down_to_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(tmp_path)
    assert tuple(config.key for config in loaded.run.configs) == LAPTOP
    assert loaded.deployment == Deployment()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.origins.keys() == loaded.values().keys()
    write(tmp_path, "seed = 1\ntick_seconds = 2\nmin_quality = 0.5\n[deployment]\nnode = 'gpu1'\n")
    monkeypatch.setenv("FLYBALL_SEED", "7")
    monkeypatch.setenv("FLYBALL_TICK_SECONDS", "4.5")
    loaded = load(tmp_path, {"seed": 9})
    assert (loaded.run.seed, loaded.run.tick_seconds, loaded.run.min_quality) == (9, 4.5, 0.5)
    wanted = {
        "seed": "command line",
        "tick_seconds": "environment FLYBALL_TICK_SECONDS",
        "min_quality": "flyball.toml",
        "deployment.node": "flyball.toml",
        "deployment.endpoint": "default",
    }
    assert {key: loaded.origins[key] for key in wanted} == wanted
    loaded = load(write(tmp_path, "[deployment]\nnode = 'gpu1'\n[league.tournaments]\ngames = 60\n"))
    assert loaded.run.selfplay_workers == ("selfplay_worker@gpu1",)
    assert loaded.origins["selfplay_workers"] == "flyball.toml"
    assert loaded.run.league.tournaments.games == 60, "a setting may be called as the table of games"


def test_a_game_is_changed_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, f"{HEARTS}[games.hearts_4p]\nlearning_rate = 2e-4\nepochs = 4\nppo.symmetries = false\n")
    monkeypatch.setenv(f"{VARIABLE}EPOCHS", "5")
    monkeypatch.setenv(f"{VARIABLE}OUTCOME_SCALE", "1")
    monkeypatch.setenv(f"{VARIABLE}NETWORK__HIDDEN", "[8, 4]")
    loaded = load(tmp_path)
    (hearts,) = loaded.run.configs
    assert (hearts.learning_rate, hearts.epochs, hearts.network.hidden) == (2e-4, 5, (8, 4))
    assert (hearts.ppo.symmetries, hearts.outcome_scale) == (False, 1.0)
    assert hearts.ppo.gamma == GAMES[hearts.key].ppo.gamma
    assert loaded.origins[f"{PLACE}learning_rate"] == "flyball.toml"
    assert loaded.origins[f"{PLACE}epochs"] == f"environment {VARIABLE}EPOCHS"
    assert loaded.origins[f"{PLACE}ppo.gamma"] == "default"
    tower = load(write(tmp_path, "[games.connect_four_2p.network]\nkind = 'tower'\nblocks = 2\n"))
    assert tower.games["connect_four_2p"].network == NetworkSettings(kind="tower", blocks=2)
    changed = load(write(tmp_path, "[games.connect_four_2p.network]\nfilters = 8\n"))
    assert changed.games["connect_four_2p"].network == GAMES["connect_four_2p"].network.replace(filters=8)


def test_options_take_any_key_and_keep_their_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = "rate = 0.5\nnames = ['a', {b = 1}]\nempty = {}\n[games.hearts_4p.options.deep]\nx = 1\n"
    network = "[games.hearts_4p.network]\nkind = 'mine:build'\n[games.hearts_4p.network.options]\ndeep.er = [1]\n"
    write(tmp_path, f"{HEARTS}[games.hearts_4p.options]\n{given}{network}")
    monkeypatch.setenv(f"{VARIABLE}OPTIONS__RATE", "2")
    monkeypatch.setenv(f"{VARIABLE}OPTIONS__WORD", "two")
    loaded = load(tmp_path, nest({f"{PLACE}options.deep.y": True}))
    deep = {"x": 1, "y": True}
    expected = {"rate": 2, "names": ["a", {"b": 1}], "empty": {}, "deep": deep, "word": "two"}
    assert loaded.run.configs[0].options == expected
    assert loaded.run.configs[0].network.options == {"deep": {"er": [1]}}
    assert loaded.values()[f"{PLACE}network.options.deep.er"] == [1]
    table = f"{PLACE}options."
    assert {key.removeprefix(table): loaded.origins[key] for key in loaded.origins if key.startswith(table)} == {
        "rate": f"environment {VARIABLE}OPTIONS__RATE",
        "names": "flyball.toml",
        "empty": "flyball.toml",
        "deep.x": "flyball.toml",
        "deep.y": "command line",
        "word": f"environment {VARIABLE}OPTIONS__WORD",
    }


def test_options_of_another_shape_and_empty_tables(tmp_path: Path) -> None:
    write(tmp_path, f"{HEARTS}[games.hearts_4p.options]\nrate = 0.5\nnet = {{size = 3}}\n")
    (hearts,) = load(tmp_path, nest({f"{PLACE}options": {"rate": {"first": 1}, "net": "small"}})).run.configs
    assert hearts.options == {"rate": {"first": 1}, "net": "small"}
    loaded = load(write(tmp_path, f"{HEARTS}[feedback]\n[games.hearts_4p]\n[games.hearts_4p.options]\n"))
    assert loaded.run.configs == (GAMES["hearts_4p"],)
    assert loaded.values()[f"{PLACE}options"] == {}


def test_profile_and_new_games_cover_configs_below(tmp_path: Path) -> None:
    write(tmp_path, "configs = ['hearts_4p']\n")
    loaded = load(tmp_path, {"profile": "full"})
    assert len(loaded.run.configs) == len(PROFILES["full"])
    assert loaded.origins["configs"] == "command line"
    write(
        tmp_path,
        "configs = ['hex5_2p']\n[games.hex5_2p]\ngame = 'hex(board_size=5)'\nplayers = 2\nknobs = ['epochs']\n",
    )
    config = load(tmp_path).run.config("hex5_2p")
    assert (config.game, config.knobs) == ("hex(board_size=5)", ("epochs",))


BOT = "configs = ['hearts_4p']\n[games.hearts_4p.bots.mine]\n"
BAD_BOTS = [
    ("plyer = 'a:b'", ["'games.hearts_4p.bots.mine.plyer'", "Did you mean games.hearts_4p.bots.mine.player?"]),
    ("nodes = 3", ["games.hearts_4p.bots.mine (flyball.toml)", "either a player or a command"]),
    ("player = 'a:b'\ncommand = ['x']", ["either a player or a command"]),
    ("player = 'a:b'\nnodes = 3", ["nodes are for a command"]),
    ("command = ['x']", ["needs its protocol: gtp, uci or usi"]),
    ("command = ['x']\nprotocol = 'xboard'", ["bots.mine.protocol (flyball.toml)", "'gtp', 'uci' or 'usi'"]),
    ("command = ['x']\nprotocol = 'gtp'\nnodes = 3", ["gtp knows no nodes"]),
    ("command = ['x']\nprotocol = 'usi'", ["speaks usi needs a limit: set nodes or seconds"]),
    ("command = ['x']\nprotocol = 'gtp'\nseconds = 60", ["answer_seconds has to be more than seconds"]),
    (
        "command = ['x']\nprotocol = 'gtp'\nseconds = 0.5\nanswer_seconds = 1",  # gtp rounds up
        ["answer_seconds has to be more than seconds"],
    ),
    ("command = ['x']\nprotocol = 'gtp'\noptions = {level = [1, 2]}", ["options of an engine are texts, numbers"]),
    ("player = 'a:b'\noptions = {'lr.decay' = 1}", ["key 'lr.decay' in", "has a dot in it"]),
]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("sede = 1", ["'sede'", "flyball.toml", "Did you mean seed?"]),
        ("[deployment]\nnodes = 'x'", ["'deployment.nodes'", "Did you mean deployment.node?"]),
        ("[deployment.keys]\nconfigs = ['hearts_4p']", ["'deployment.keys.configs'", "configs belongs above all"]),
        ("[deployment]\nheartbeat_seconds = 5", ["node_silent_seconds 9 has to be at least 2 times", "seconds 5;"]),
        ("seed = 'many'", ["seed (flyball.toml)", "integer"]),
        ("[games.hearts_4p]\nepochs = 0", ["games.hearts_4p.epochs (flyball.toml)"]),
        ("[games.hearts_4p]\nknobs = ['epoch']", ["games.hearts_4p.knobs", "(flyball.toml)"]),
        ("seed = false", ["seed (flyball.toml)", "a number, which true and false are not"]),
        ("[games.hearts_4p]\nlearning_rate = true", ["games.hearts_4p.learning_rate (flyball.toml)", "number"]),
        ("[games.hearts_4p.network]\nhidden = [8, true]", ["games.hearts_4p.network.hidden (flyball.toml)", "number"]),
        (
            "[games.hearts_4p.network]\nkind = 'tower'\nhidden = [8]",
            ["games.hearts_4p.network", "'tower' has no hidden"],
        ),
        ("[games.hearts_4p.network]\nblocks = 8", ["games.hearts_4p.network", "'mlp' has no blocks"]),
        ("[games.hearts_4p.network]\noption.a = 8", ["Did you mean games.hearts_4p.network.options?"]),
        ("[deployment.options]\na = 8", ["Unknown setting 'deployment.options.a'"]),
        ("[games.hearts_4p]\nmax_moves = true", ["games.hearts_4p.max_moves (flyball.toml)", "number"]),
        ("seed = ", ["flyball.toml cannot be read"]),
        ("profile = 'desk'", ["'desk'", "laptop"]),
        ("configs = 'hearts_4p'", ["configs (flyball.toml)", "list"]),
        ("deployment = 3", ["'deployment'"]),
        ("[deployment]\nendpoint = 'tcp://0.0.0.0:5555'", ["other machines"]),
        ("[deployment]\nendpoint = 'tcp://*:5555'", ["other machines"]),
        ("[deployment]\nendpoint = 'tcp://127.0.0.1'", ["no address"]),
        ("[deployment]\nnode = 'a b'", ["deployment.node (flyball.toml)"]),
        (
            "[games.hearts_4p]\ntrain_command = 'python \"my trainer.py\"'",
            ["games.hearts_4p.train_command", "should be a list", 'Write a list: ["python", "my trainer.py"]'],
        ),
        ("[games.hearts_4p]\ntrain_command = 'a \"b'", ['Write a list: ["a", "\\"b"]']),
        ("[games.My-Go]\ngame = 'go'\nplayers = 2", ["[games.My-Go] cannot be", "for instance [games.my_go_2p]"]),
        ("[games.go_2p_3]\ngame = 'go'\nplayers = 3", ["[games.go_2p_3]", "for instance [games.go_2p_3p]"]),
        ("[controllers.a]\nuse = 'b:C'\ntakes_over = ['epoch']", ["takes_over.0", "Did you mean epochs?"]),
        ("[controllers.a]\nuse = 'b:C'\ntakes_over = 'epochs'", ["takes_over", 'Write a list: ["epochs"]']),
        ("[controllers.a]\nuse = 'b:C'\ntakes_over = ['xyz']", ["'learning_rate', 'epochs'", "config show"]),
        ("configs = ['mine_2p']\n[games.mine_2p]\ngame = 'hex'", ["[games.mine_2p] (flyball.toml) lacks players."]),
        ("configs = ['mine_2p']\n[games.mine_2p]\nplayers = 2", ["[games.mine_2p] (flyball.toml) lacks game."]),
        *((f"{BOT}{text}", parts) for text, parts in BAD_BOTS),
    ],
)
def test_bad_files_are_refused_with_the_key_and_the_way_out(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(BadSettings) as caught:
        load(write(tmp_path, text))
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("former", "key"),
    [
        ("feedback.scheduler.node_silent_seconds", "deployment.node_silent_seconds"),
        ("deployment.evaluation_processes", "deployment.processes.evaluation"),
        (f"{PLACE}ppo.learning_rate", f"{PLACE}learning_rate"),
        (f"{PLACE}ppo.epochs", f"{PLACE}epochs"),
    ],
)
def test_former_key_sets_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: str, key: str
) -> None:
    loaded = load(write(tmp_path, f"{HEARTS}{former} = 1\ndeployment.heartbeat_seconds = 0.5\n"))
    assert (loaded.values()[key], loaded.origins[key]) == (1, f"flyball.toml, as {former}")
    with pytest.raises(BadSettings, match=f"{key} and {former} are the same. Keep {key}"):
        load(tmp_path, nest({former: 5, key: 5}))
    monkeypatch.setenv(variable(former), "-3")
    with pytest.raises(BadSettings, match=rf"environment {variable(former)}, as {former}\)"):
        load(tmp_path)


def test_empty_table_of_a_group_sets_nothing(tmp_path: Path) -> None:
    assert load(write(tmp_path, "[controllers.foo]\n[games.hearts_4p]\n")).values() == load(tmp_path / "none").values()


def test_tags_of_ray_jobs_take_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "[deployment.ray.selfplay.tags]\nbig = 1\n")
    monkeypatch.setenv("FLYBALL_DEPLOYMENT__RAY__SELFPLAY__TAGS", '{"near": 0.5}')
    assert load(tmp_path).deployment.ray.selfplay.tags == {"big": 1.0, "near": 0.5}


@pytest.mark.parametrize("text", ["configs = ['harts_4p']", "[games.harts_4p]\nepochs = 2"])
def test_unknown_configurations_name_the_nearest_or_all(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnknownConfig, match="Did you mean hearts_4p"):
        load(write(tmp_path, text))
    write(tmp_path, "[games.hex5_2p]\ngame = 'hex(board_size=5)'\nplayers = 2\n")
    with pytest.raises(UnknownConfig) as caught:
        load(tmp_path, {"configs": ["zzz"]})
    assert f"There are: {', '.join(sorted([*GAMES, 'hex5_2p']))}. A new one is a table" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("FLYBALL_DEPLOYMENT__NODDE", "x", r"FLYBALL_DEPLOYMENT__NODDE.*deployment\.node"),
        ("FLYBALL_CONFIGS", "hearts_4p", r'Write \["hearts_4p"\]'),
        ("FLYBALL_SELFPLAY_WORKERS", "a", "JSON"),
        ("FLYBALL_GAMES__HEARTS_4P__NETWORK__HIDDEN", "8", "hidden"),
        ("FLYBALL_GAMES__HEARTS_4P__NETWORK__HIDDEN", "8, 4", "JSON"),
    ],
)
def test_unusable_variables_are_refused(tmp_path, monkeypatch, name: str, value: str, way_out: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadSettings, match=way_out):
        load(tmp_path)


def test_the_named_file_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="no settings file"):
        load(tmp_path, config_file=tmp_path / "other.toml")


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:5000", "tcp://localhost:5000", "tcp://[::1]:5000", "ipc:///x"])
def test_loopback_endpoints_are_taken_as_they_are(tmp_path: Path, endpoint: str) -> None:
    assert bus_endpoint(RunFolder(tmp_path), Deployment(endpoint=endpoint)) == endpoint


def test_flat_and_nested_are_inverse() -> None:
    tree = {"a": 1, "b": {"c": [2], "d": {"e": None}}}
    assert nest(flatten(tree)) == tree


def test_long_paths_get_a_private_folder_that_everybody_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "x".ljust(MAX_SOCKET_PATH, "x")
    assert bus_endpoint(RunFolder(missing), Deployment()).endswith("/bus.sock")
    assert list(tmp_path.iterdir()) == [], "the address of a missing folder makes nothing"
    folder = RunFolder(tmp_path / ("x" * 120))
    folder.path.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = bus_endpoint(folder, Deployment())
    private = Path(found.removeprefix("ipc://")).parent
    assert private.parent == tmp_path
    assert private.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    assert bus_endpoint(folder, Deployment()) == found
    private.chmod(0o755)
    with pytest.raises(UnsafeFolder):
        bus_endpoint(folder, Deployment())


@pytest.mark.parametrize("name", ["tmp/flyball-test-run", "é" * ((MAX_SOCKET_PATH - 10) // 2)])
def test_socket_of_a_short_path_in_bytes_lies_in_the_run_folder(name: str) -> None:
    assert bus_endpoint(RunFolder(Path("/") / name), Deployment()) == f"ipc:///{name}/bus.sock"


def test_copy_and_renamed_folder_have_sockets_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never control another run from a copy, or a new folder."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    one, two, three = (tmp_path / name.ljust(MAX_SOCKET_PATH, "x") for name in ("one", "two", "three"))
    one.mkdir()
    first = bus_endpoint(RunFolder(one), Deployment())
    shutil.copytree(one, two, symlinks=True)
    assert (two / "sockets").readlink() == (one / "sockets").readlink(), "as cp -r leaves it"
    assert bus_endpoint(RunFolder(two), Deployment()) != first
    assert bus_endpoint(RunFolder(one), Deployment()) == first
    one.rename(three)
    assert bus_endpoint(RunFolder(three), Deployment()) == first, "a renamed run keeps its broker"
    one.mkdir()
    assert bus_endpoint(RunFolder(one), Deployment()) not in (first, bus_endpoint(RunFolder(two), Deployment()))
    shutil.copytree(one, four := tmp_path / "four".ljust(MAX_SOCKET_PATH, "x"))
    with pytest.raises(UnsafeFolder, match="should be a link"):
        bus_endpoint(RunFolder(four), Deployment())


def test_a_matchmaking_preset_is_named_and_changed_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "[league]\nmatchmaking = 'mirror'\n")
    monkeypatch.setenv("FLYBALL_LEAGUE__MATCHMAKING__PEERS", "0.5")
    loaded = load(tmp_path)
    assert loaded.run.league.matchmaking == MATCHMAKING["mirror"].replace(peers=0.5)
    assert loaded.origins["league.matchmaking.mirror"] == "flyball.toml"
    assert loaded.origins["league.matchmaking.peers"] == "environment FLYBALL_LEAGUE__MATCHMAKING__PEERS"
    with pytest.raises(BadSettings, match="'mirrors', which is no preset"):
        load(write(tmp_path, "[league]\nmatchmaking = 'mirrors'\n"))


@pytest.mark.parametrize("key", ["min_quality", "feedback.gauntlet.max_quality_threshold"])
def test_threshold_above_where_training_pauses_is_refused(tmp_path: Path, key: str) -> None:
    """Such a threshold would have no effect."""
    with pytest.raises(BadSettings, match=rf"{key}: 0.55 lies above feedback.intensity.reduced 0.5"):
        load(tmp_path, nest({key: 0.55}))
    assert load(tmp_path, nest({key: 0.55, "feedback.intensity.reduced": 0.55}))


def test_bot_is_a_table_whose_values_any_layer_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, f"{BOT}command = ['x', '--go']\nprotocol = 'uci'\nnodes = 5\noptions = {{'Skill Level' = 3}}\n")
    monkeypatch.setenv("FLYBALL_GAMES__HEARTS_4P__BOTS__MINE__NODES", "7")
    monkeypatch.setenv("FLYBALL_GAMES__HEARTS_4P__BOTS__MINE__OPTIONS__HASH", "1")
    loaded = load(tmp_path)
    (mine,) = loaded.run.configs[0].bots.values()
    assert (mine.command, mine.protocol, mine.nodes) == (("x", "--go"), "uci", 7)
    assert mine.options == {"Skill Level": 3, "hash": 1}
    assert loaded.origins["games.hearts_4p.bots.mine.nodes"].startswith("environment FLYBALL_GAMES")
    assert loaded.values()["games.hearts_4p.bots.mine.options.hash"] == 1


@pytest.mark.parametrize("name", ["random", "heuristic", "self", "model", "champion", "anchor_1", "top_k", "Mine"])
def test_bot_with_a_name_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSettings, match=f"hearts_4p.*(cannot be called '{name}'|match pattern)"):
        load(write(tmp_path, BOT.replace("mine", name) + "player = 'a:b'\n"))


def test_the_node_is_named_like_the_host_where_keys_are_set(tmp_path, monkeypatch):
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename="gpu7.cluster.example"))
    alone, keyed = tmp_path / "alone.toml", tmp_path / "keyed.toml"
    alone.write_text("[deployment]\n")
    keyed.write_text('[deployment.keys]\nsecret = "s"\nallowed = "a"\n')
    assert load(tmp_path, config_file=alone).deployment.node == "laptop"
    assert load(tmp_path, config_file=keyed).deployment.node == "gpu7"
