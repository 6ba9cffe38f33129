"""The HTTP port for participants: requests, answers, the token, refusals, OpenAPI."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator
from participation_specs import JOBS, MODEL, PLAY, TRAIN

from flyball.app.api.participant_port import MOST_BYTES, Port, openapi
from flyball.app.engine import JobFailed, scatter
from flyball.app.engine.relay import RelayEngine

TOKEN = "0123456789abcdef"
ASK = {"worker": "w1", "wait_seconds": 0}


class Rig:
    """An engine whose jobs are handed out at a port, and a client."""

    def __init__(self) -> None:
        self.engine = RelayEngine()
        transport = httpx2.ASGITransport(Port(self.engine, TOKEN).application())
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.client = httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)
        self.reports: list[dict] = []
        self.jobs: list[asyncio.Task] = []

    async def run(self, name: str = "train", spec: Any = TRAIN) -> asyncio.Task:
        function = f"{JOBS}:{name}"
        task = asyncio.get_running_loop().create_task(self.engine.run(function, spec, self.reports.append, 60.0))
        self.jobs.append(task)
        await asyncio.sleep(0)
        return task

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, Any]:
        response = await self.client.post(path, json=body, **options)
        return response.status_code, response.json() if response.content else None


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    await rig.client.aclose()
    await rig.engine.close()
    await asyncio.gather(*rig.jobs, return_exceptions=True)  # retrieves the errors of those that the end cut off


async def test_worker_gets_a_request_and_answers_it(rig: Rig) -> None:
    assert await rig.post("/requests", ASK) == (204, None)
    job = await rig.run()
    status, request = await rig.post("/requests", ASK)
    assert (status, request["kind"], request["epochs"], request["deadline_seconds"]) == (200, "training", 2, 60.0)
    path = f"/attempts/{request['attempt']}"
    progress = {"epoch": 1, "epochs": 2, "metrics": {"loss": 0.5, "epoch": 7.0}}
    assert await rig.post(f"{path}/progress", progress) == (204, None)
    status, refused = await rig.post(f"{path}/answer", {"model": "latest"})
    assert (status, "SHA-256" in refused["error"]) == (422, True)
    assert await rig.post(f"{path}/answer", {"model": MODEL}) == (204, None)
    assert (await job)["model"] == MODEL
    assert rig.reports == [progress]
    status, refused = await rig.post(f"{path}/answer", {"model": MODEL})
    assert (status, refused["hint"][:15]) == (409, "It was answered")


async def test_worker_that_starts_again_gets_its_request_again(rig: Rig) -> None:
    await rig.run()
    _, first = await rig.post("/requests", ASK)
    assert await rig.post("/requests", ASK | {"worker": "w2"}) == (204, None)
    assert await rig.post("/requests", ASK) == (200, first)


async def test_worker_gets_only_the_kinds_that_it_names(rig: Rig) -> None:
    await rig.run()
    await rig.run("play", PLAY)
    _, request = await rig.post("/requests", ASK | {"kinds": ["selfplay"]})
    assert request["kind"] == "selfplay"
    assert await rig.post("/requests", ASK | {"worker": "w2", "kinds": ["evaluation"]}) == (204, None)


async def test_failure_has_its_reason(rig: Rig) -> None:
    job = await rig.run()
    _, request = await rig.post("/requests", ASK)
    failure = {"reason": "diverged", "text": "NaN"}
    assert await rig.post(f"/attempts/{request['attempt']}/failure", failure) == (204, None)
    with pytest.raises(JobFailed, match="diverged: NaN"):
        await job


LATE = (
    ("progress", {"epoch": 1, "epochs": 2}),
    ("answer", {"model": "d" * 64}),
    ("failure", {"reason": "error", "text": "killed"}),
)


@pytest.mark.parametrize(("call", "body"), LATE)
async def test_late_call_leaves_the_next_attempt_alone(rig: Rig, call: str, body: dict) -> None:
    (await rig.run()).cancel()
    _, first = await rig.post("/requests", ASK)
    await asyncio.sleep(0)
    job = await rig.run()
    late = f"/attempts/{first['attempt']}/{call}"
    assert (await rig.post(late, body))[0] == 409, "before anybody has the request again"
    _, second = await rig.post("/requests", ASK | {"worker": "w2"})
    assert (second["id"], second["attempt"] == first["attempt"]) == (first["id"], False)
    status, refused = await rig.post(late, body)
    assert (status, refused["error"].endswith("this call changed nothing.")) == (409, True)
    assert await rig.post(f"/attempts/{second['attempt']}/answer", {"model": MODEL}) == (204, None)
    assert (await job)["model"] == MODEL
    assert rig.reports == []


async def test_request_of_a_silent_worker_goes_to_the_next(rig: Rig) -> None:
    parts = asyncio.get_running_loop().create_task(scatter(rig.engine, f"{JOBS}:train", [TRAIN]))
    _, first = await rig.post("/requests", {"worker": "w1", "wait_seconds": 5, "silent_seconds": 0.05})
    await asyncio.sleep(0.1)
    status, second = await rig.post("/requests", {"worker": "w2", "wait_seconds": 5})
    assert (status, second["id"]) == (200, first["id"])
    late = await rig.post(f"/attempts/{first['attempt']}/failure", {"reason": "error", "text": "I was slow"})
    assert late[0] == 409
    assert await rig.post(f"/attempts/{second['attempt']}/answer", {"model": MODEL}) == (204, None)
    assert [part["model"] for part in await parts] == [MODEL]


@pytest.mark.parametrize("sign", ["progress", "asks again"])
async def test_sign_of_life_keeps_an_attempt(rig: Rig, monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    job, ask = await rig.run("play", PLAY), ASK | {"silent_seconds": 1.0}
    _, request = await rig.post("/requests", ask)
    for _ in range(3):
        now += 0.9
        if sign == "progress":
            path = f"/attempts/{request['attempt']}/progress"
            assert await rig.post(path, {"epoch": 1, "epochs": 1}) == (204, None)
        else:
            assert await rig.post("/requests", ask) == (200, request)
        assert await rig.post("/requests", ASK | {"worker": "w2"}) == (204, None)
    assert not job.done()


async def test_long_poll_ends_when_the_participant_does(rig: Rig) -> None:
    await rig.run()
    _, request = await rig.post("/requests", ASK)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        polling = group.create_task(rig.post("/requests", {"worker": "w2", "wait_seconds": 60}))
        await asyncio.sleep(0)
        rig.engine.withdraw()
    status, refused = polling.result()
    assert (status, refused["error"]) == (503, "This participant ends, and hands out no more requests.")
    assert await rig.post("/requests", ASK) == (200, request), "its attempt may still be answered"
    assert await rig.post(f"/attempts/{request['attempt']}/answer", {"model": MODEL}) == (204, None)


@pytest.mark.parametrize("header", ["", "Bearer wrong", f"Basic {TOKEN}", "Bearer"])
async def test_calls_without_the_token_are_refused(rig: Rig, header: str) -> None:
    await rig.run()
    status, refused = await rig.post("/requests", ASK, headers={"authorization": header})
    assert (status, refused["error"]) == (401, "The token is missing or wrong.")
    assert rig.engine.take(0.0) is not None


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{", 400), (b"[]", 400), (b"\xff", 400), (b'{"worker": ""}', 422), (b'{"wait_seconds": 1}', 422)],
)
async def test_calls_that_make_no_sense_are_refused(rig: Rig, content: bytes, status: int) -> None:
    response = await rig.client.post("/requests", content=content)
    assert (response.status_code, {*response.json()}) == (status, {"error", "hint"})


async def test_body_beyond_the_bound_is_refused(rig: Rig) -> None:
    response = await rig.client.post("/requests", content=b" " * (MOST_BYTES + 1))
    assert response.status_code == 413


async def test_openapi_names_all_that_it_refers_to(rig: Rig) -> None:
    document = (await rig.client.get("/openapi.json", headers={"authorization": ""})).json()
    assert document == json.loads(json.dumps(openapi()))
    assert sorted(document["paths"]) == [
        "/attempts/{attempt}/answer",
        "/attempts/{attempt}/failure",
        "/attempts/{attempt}/progress",
        "/requests",
    ]
    text, schemas = json.dumps(document), document["components"]["schemas"]
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert {"TrainingTask", "SelfplayAnswer", "NextRequest"} <= named <= schemas.keys()


@pytest.mark.parametrize(("name", "spec"), [("train", TRAIN), ("play", PLAY)])
async def test_request_is_as_openapi_describes_it(rig: Rig, name: str, spec: Any) -> None:
    await rig.run(name, spec)
    _, request = await rig.post("/requests", ASK)
    document = openapi()
    schema = document["paths"]["/requests"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    Draft202012Validator(schema | {"components": document["components"]}).validate(request)
