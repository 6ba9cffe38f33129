"""Contract of starting programs, forked and by a new interpreter, and of the fork server itself."""

import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from flyball.app.cli.up import PRELOADED
from flyball.app.engine import LocalEngine, WorkerLost
from flyball.app.engine.programs import (
    UNKNOWN_CODE,
    Program,
    can_fork,
    child_environment,
    python_module,
    start_program,
    start_server,
    use_channel,
)

HERE = str(Path(__file__).parent)
REPORTER = python_module("reporting_program", "a b", "é")
ON_LINUX = pytest.mark.skipif(not can_fork(), reason="the system cannot fork programs")


@pytest.fixture(autouse=True)
def _programs_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)


@asynccontextmanager
async def fork_server(*modules: str) -> AsyncIterator[Program]:
    """Run a fork server that has imported the modules."""
    started = await start_server(python_module("flyball.app.engine.fork_server", *modules), child_environment(1), 2)
    try:
        yield started
    finally:
        use_channel(None)
        await started.wait()


@pytest.fixture
async def server() -> AsyncIterator[Program]:
    """Run a fork server that has NumPy."""
    async with fork_server("numpy") as started:
        yield started


@pytest.fixture(params=["interpreter", pytest.param("fork", marks=ON_LINUX)])
async def way(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Start programs in both ways."""
    async with AsyncExitStack() as stack:
        if request.param == "fork":
            await stack.enter_async_context(fork_server("numpy"))
        yield request.param


async def begun(**options: Any) -> tuple[Program, dict[str, Any]]:
    """Start the reporting program; return it and its report."""
    environment = options.pop("environment", None) or child_environment(1)
    command: Sequence[str] = options.pop("command", REPORTER)
    program = await start_program(command, environment, answers=True, **options)
    assert program.stdout is not None
    return program, json.loads(await program.stdout.readline())


async def told(program: Program, word: str) -> int:
    """Tell the program a word, and return its exit code."""
    assert program.stdin is not None
    program.stdin.write(f"{word}\n".encode())
    return await program.wait()


@pytest.mark.usefixtures("way")
async def test_program_gets_what_its_starter_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    environment = child_environment(1) | {"ODD": "a=b\nc\udcff"}
    program, report = await begun(environment=environment)
    assert await told(program, "3") == 3
    assert program.returncode == 3
    assert report["arguments"] == ["a b", "é"]
    assert report["environment"].items() >= environment.items()
    assert report["folder"] == str(tmp_path)
    assert report["pid"] == report["session"] == program.pid


@ON_LINUX
async def test_forked_program_sees_what_a_new_interpreter_does(server: Program) -> None:
    """Compare all that a program can see of itself, apart from its id and chance."""
    seen = []
    for fork in (True, False):
        program, report = await begun(fork=fork)
        assert psutil.Process(program.pid).ppid() == (server.pid if fork else os.getpid())
        await told(program, "0")
        seen.append(
            {name: value for name, value in report.items() if name not in ("pid", "session", "random", "numpy")}
        )
    forked, fresh = seen
    assert list(dict.fromkeys(fresh.pop("path"))) == forked.pop("path")
    assert forked == fresh


@ON_LINUX
@pytest.mark.usefixtures("server")
async def test_forked_programs_draw_different_numbers() -> None:
    programs = [await begun(environment=child_environment(1) | {"NUMPY": "1"}) for _ in range(2)]
    for program, _ in programs:
        await told(program, "0")
    (_, one), (_, other) = programs
    assert one["random"] != other["random"]
    assert one["numpy"] != other["numpy"]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("word", "code", "last_line"),
    [("0", 0, ""), ("exit no dial", 1, "no dial"), ("raise", 1, "LookupError: no such dial")],
)
async def test_exit_code_and_stderr_are_those_of_python(word: str, code: int, last_line: str, tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w+") as stderr:
        program, _ = await begun(stderr=stderr.fileno())
        assert await told(program, word) == code
        assert (stderr.seek(0), stderr.read().strip().rpartition("\n")[2]) == (0, last_line)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("method", "code"), [("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL)])
async def test_signal_that_ends_a_program_is_its_exit_code(method: str, code: int) -> None:
    program, _ = await begun()
    getattr(program, method)()
    assert await program.wait() == code


@pytest.mark.usefixtures("way")
async def test_program_inherits_open_files_under_their_numbers() -> None:
    reader, writer = os.pipe()
    try:
        program, report = await begun(command=python_module("reporting_program", str(writer)), files=[writer])
        await told(program, "write")
        assert os.read(reader, 10) == b"here"
        assert reader not in report["files"]
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.usefixtures("way")
async def test_job_of_an_engine_runs_and_its_death_is_told() -> None:
    engine = LocalEngine(nice=3)
    try:
        child = await engine.run("engine_jobs:double", {"number": 21})
        assert (child["number"], child["session"], child["nice"]) == (42, child["pid"], min(19, os.nice(0) + 3))
        with pytest.raises(WorkerLost, match="ended with status"):
            await engine.run("engine_jobs:leave", {})
        assert (await engine.run("engine_jobs:double", {"number": 4}))["pid"] != child["pid"]
    finally:
        await engine.close()


async def test_forked_job_has_the_threads_that_its_engine_names() -> None:
    async with fork_server("torch") as server:
        for threads in (1, 3):
            engine = LocalEngine(threads=threads)
            job = await engine.run("engine_jobs:double", {"number": 1})
            assert psutil.Process(job["pid"]).ppid() == server.pid
            assert await engine.run("engine_jobs:threads", {}) == {"torch": threads}
            await engine.close()


@ON_LINUX
async def test_engine_that_must_not_fork_starts_interpreters(server: Program) -> None:
    engine = LocalEngine(fork=False)
    job = await engine.run("engine_jobs:double", {"number": 1})
    assert psutil.Process(job["pid"]).ppid() == os.getpid() != server.pid
    await engine.close()


@ON_LINUX
async def test_programs_outlive_a_killed_server_and_new_ones_start(server: Program) -> None:
    program, _ = await begun()
    server.kill()
    await server.wait()
    assert program.returncode is None
    other, report = await begun()
    assert psutil.Process(other.pid).ppid() == os.getpid()
    assert report["arguments"] == ["a b", "é"]
    assert await told(other, "7") == 7
    assert await told(program, "7") == UNKNOWN_CODE


@ON_LINUX
async def test_server_asked_to_end_waits_for_its_last_program(server: Program) -> None:
    program, _ = await begun()
    server.terminate()
    other, _ = await begun()
    assert await told(other, "0") == 0
    assert server.returncode is None
    assert await told(program, "0") == 0
    assert await server.wait() == 0


@ON_LINUX
async def test_server_refuses_to_fork_beside_threads(tmp_path: Path) -> None:
    """Import a module that starts a thread: it would be missing in every fork."""
    (tmp_path / "threaded.py").write_text("import threading\nthreading.Thread(target=threading.Event().wait).start()")
    environment = child_environment(1)
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    with (tmp_path / "stderr").open("w+") as stderr:
        command = python_module("flyball.app.engine.fork_server", "threaded")
        server = await start_server(command, environment, stderr.fileno())
        program, _ = await begun()
        assert psutil.Process(program.pid).ppid() == os.getpid()
        assert await told(program, "0") == 0
        assert await server.wait() == 2
        stderr.seek(0)
        assert "2 threads" in stderr.read()
    use_channel(None)


@ON_LINUX
async def test_modules_of_a_run_can_be_imported_before_forks() -> None:
    async with fork_server(*PRELOADED) as server:
        program, report = await begun()
        assert psutil.Process(program.pid).ppid() == server.pid
        assert report["files"] == [0, 1, 2]
        assert report["threads"] == [1, 1]
        await told(program, "0")
