"""A Ray cluster of two nodes in its own network namespace. It prints what happens while a node comes and goes."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import psutil

from flyball.app.engine import WorkerLost
from flyball.app.engine.ray_engine import NoRay, RayEngine

HEAD = "127.0.0.1:6390"
START = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory=80000000")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}


async def connected() -> RayEngine:
    while True:
        try:
            return RayEngine(HEAD, {"CPU": 1.0})
        except NoRay:
            await asyncio.sleep(0.5)


def started(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen([*START, *arguments], **QUIET)


def end(process: subprocess.Popen) -> None:
    for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        one.kill()
    process.wait()


async def main() -> None:
    head = started("--head", f"--port={HEAD[10:]}", "--num-cpus=1", "--include-dashboard=false")
    engine = await connected()
    far = RayEngine(HEAD, {"CPU": 1.0, "far": 1.0})
    told = {"before": (await engine.capacity(), await far.capacity())}
    waiting = asyncio.get_running_loop().create_task(far.run("engine_jobs:double", {"number": 4}))
    node = started(f"--address={HEAD}", "--num-cpus=1", '--resources={"far": 1}')
    told["waited"] = (await waiting)["number"]
    told["both"] = (await engine.capacity(), await far.capacity())
    reports: asyncio.Queue[dict] = asyncio.Queue()
    running = asyncio.get_running_loop().create_task(far.run("engine_jobs:wait", {}, reports.put_nowait))
    await reports.get()
    end(node)
    try:
        await running
    except WorkerLost as lost:
        told["lost"] = lost.message
    told["other"] = (await engine.run("engine_jobs:double", {"number": 2}))["number"]
    while await far.capacity():
        await asyncio.sleep(0.2)
    told["after"] = (await engine.capacity(), await far.capacity())
    sys.stdout.write(json.dumps(told))
    end(head)


sys.path.append(str(Path(__file__).parents[1] / "contract"))
asyncio.run(main())
