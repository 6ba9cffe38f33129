"""Delivery to webhooks: at least once, in order, despite faults."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from builders import recorded
from scripted_server import OK, ScriptedServer, answers, scripted_server, status

from flyball.app.bus.memory import MemoryBus
from flyball.app.config import BadSettings
from flyball.app.config.loading import load
from flyball.app.config.monitoring import NotificationSettings
from flyball.app.events import DaemonFailed, Event, ModelDistributed, TrainingUnblocked, originate
from flyball.app.events.envelope import EPOCH
from flyball.app.journal.memory import MemoryJournal, MemoryStateStore
from flyball.daemons.clock import SystemClock
from flyball.daemons.notifications import LINE_LENGTH, MOST_LINES, Webhook, check_notifications, slack_text, terms_of
from flyball.daemons.receivers import Outlet
from flyball.daemons.supervisor import Backoff

CLOCK = SystemClock()
FAILED = DaemonFailed(daemon="training", node="a", error="boom")


class Stage:
    def __init__(self) -> None:
        self.states = MemoryStateStore()
        self.bus = MemoryBus(MemoryJournal(), CLOCK)
        self.published = 0

    async def publish(self, *payloads: Any, subject: str = "hex7_2p") -> None:
        for data in payloads:
            self.published += 1
            key = None if data.scope == "system" else subject
            await self.bus.publish(originate(data, event_id=f"e{self.published}", time=EPOCH, subject=key))

    def outlet(self, server: ScriptedServer, **changes: Any) -> Outlet:
        hook = NotificationSettings(**{"name": "ops", "url": server.url, "pause_seconds": 0.0} | changes)
        terms = terms_of(hook)
        quick = type(terms)(terms.pause_seconds, terms.timeout_seconds, terms.give_up_seconds, Backoff(0.01, 0.02))
        return Outlet(Webhook.of(hook, Path(), "Flyball", CLOCK), quick, self.states, CLOCK)

    @asynccontextmanager
    async def running(self, outlet: Outlet) -> AsyncIterator[asyncio.Task[None]]:
        """Deliver from now on while the block runs, then stop as if killed."""
        task = asyncio.get_running_loop().create_task(outlet.run(self.bus))
        while outlet.delivery(0) and not self.states.load()[1]:
            await asyncio.sleep(0.005)
        try:
            yield task
        finally:
            task.cancel()


@pytest.fixture
async def stage() -> Stage:
    made = Stage()
    await made.publish(FAILED)  # published before the webhook existed, so not delivered
    return made


def told(server: ScriptedServer) -> list[str]:
    return [event["id"] for request in server.requests for event in request.json()]


async def delivered(server: ScriptedServer, count: int) -> None:
    while len(told(server)) < count:
        await asyncio.sleep(0.005)


async def caught_up(outlet: Outlet, head: int) -> None:
    while outlet.delivery(head).behind:
        await asyncio.sleep(0.005)


async def test_chosen_events_come_as_cloudevents(stage: Stage) -> None:
    async with scripted_server(OK) as server, stage.running(stage.outlet(server, events=("DAEMON_F*",))):
        await stage.publish(TrainingUnblocked(reason="x"), FAILED)
        (request,) = await server.wait_for(1)
    (event,) = request.json()
    assert request.headers["content-type"] == "application/cloudevents-batch+json; charset=utf-8"
    assert (event["id"], event["type"], event["data"]["node"]) == ("e3", "flyball.daemon.failed", "a")
    assert event["traceparent"].startswith("00-")


async def test_without_patterns_notable_events_come(stage: Stage) -> None:
    async with scripted_server(OK) as server, stage.running(stage.outlet(server)):
        await stage.publish(ModelDistributed(model="a" * 64, step=1, nodes=("a",)), TrainingUnblocked(reason="x"))
        await server.wait_for(1)
    assert told(server) == ["e3"]


async def test_other_configurations_are_left_out(stage: Stage) -> None:
    async with scripted_server(OK) as server, stage.running(stage.outlet(server, configs=("go9_2p",))):
        await stage.publish(TrainingUnblocked(reason="x"))
        await stage.publish(TrainingUnblocked(reason="x"), FAILED, subject="go9_2p")
        await delivered(server, 2)
    assert told(server) == ["e3", "e4"]


async def test_failing_server_gets_the_same_message_again(stage: Stage) -> None:
    async with scripted_server(*answers(500, 503, 401), b"", OK) as server:
        outlet = stage.outlet(server)
        async with stage.running(outlet):
            await stage.publish(FAILED)
            requests = await server.wait_for(5)
            await caught_up(outlet, 2)
    assert len({(one.body, one.headers["idempotency-key"]) for one in requests}) == 1
    assert outlet.delivery(2).outcomes == {"delivered": 1, "failed": 4, "dropped": 0}
    assert outlet.delivery(2).behind == 0


async def test_retry_after_is_waited_for(stage: Stage) -> None:
    async with scripted_server(status(429, "Retry-After: 1\r\n"), OK) as server:
        loop = asyncio.get_running_loop()
        async with stage.running(stage.outlet(server)):
            await stage.publish(FAILED)
            await server.wait_for(1)
            since = loop.time()
            await server.wait_for(2)
    assert loop.time() - since >= 0.95


async def test_slow_server_delays_no_other(stage: Stage) -> None:
    async with scripted_server(None) as slow, scripted_server(OK) as quick:
        outlet = stage.outlet(slow, name="slow", timeout_seconds=0.1)
        async with stage.running(outlet), stage.running(stage.outlet(quick)):
            await asyncio.sleep(0.05)
            await stage.publish(FAILED, FAILED, FAILED)
            await slow.wait_for(3)
            await delivered(quick, 3)
        assert outlet.delivery(4).behind == 3
        assert outlet.delivery(4).outcomes["failed"] >= 2


async def test_hopeless_message_is_dropped_and_the_next_comes(stage: Stage) -> None:
    async with scripted_server(*answers(422), OK) as server:
        outlet = stage.outlet(server)
        async with stage.running(outlet):
            for requests in (1, 2):
                await stage.publish(FAILED)
                await server.wait_for(requests)
            await caught_up(outlet, 3)
    assert outlet.delivery(3).outcomes == {"delivered": 1, "failed": 0, "dropped": 1}


async def test_message_is_given_up_in_the_end(stage: Stage) -> None:
    async with scripted_server(*answers(500)) as server:
        outlet = stage.outlet(server, give_up_hours=0.5 / 3600)
        async with stage.running(outlet):
            await stage.publish(FAILED)
            while not outlet.delivery(2).outcomes["dropped"]:
                await asyncio.sleep(0.005)
    assert len(server.requests) >= 2


async def test_killed_outlet_goes_on_where_it_was(stage: Stage) -> None:
    """A killed outlet repeats only messages without an answer."""
    async with scripted_server(OK, None) as server:
        outlet = stage.outlet(server)
        async with stage.running(outlet):
            await stage.publish(FAILED)
            await server.wait_for(1)
            await caught_up(outlet, 2)
            await stage.publish(FAILED)
            await server.wait_for(2)
        await stage.publish(FAILED)
        server.script = [OK]
        async with stage.running(stage.outlet(server)):
            while told(server)[-1] != "e4":
                await asyncio.sleep(0.005)
    assert told(server) == ["e2", "e3", "e3", "e4"]


async def test_events_within_a_pause_share_a_message(stage: Stage) -> None:
    async with scripted_server(OK) as server, stage.running(stage.outlet(server, pause_seconds=0.3)):
        await stage.publish(FAILED)
        await server.wait_for(1)
        await stage.publish(*[FAILED] * 30)
        await server.wait_for(2)
    assert [len(request.json()) for request in server.requests] == [1, 30]


def unblocked(reason: str, number: int = 1, subject: str = "hex7_2p") -> Event[Any]:
    return recorded(TrainingUnblocked(reason=reason), number, subject, source="cli@laptop")


def test_slack_text_groups_events_and_mentions_nobody() -> None:
    many = [unblocked("x", number, f"game{number}_2p") for number in range(MOST_LINES + 5)]
    lines = slack_text([unblocked("first"), unblocked("second"), *many], "Run").split("\n")
    assert lines[0] == "*Run*"
    assert lines[1].endswith(
        "TRAINING_UNBLOCKED hex7_2p  training again because second  by operator (cli@laptop) (2 times)"
    )
    assert (len(lines), lines[-1]) == (MOST_LINES + 2, "… and 6 more")
    text = slack_text([unblocked("<!channel> & co. " + "x" * 4000)], "Run")
    assert "&lt;!channel&gt; &amp; co." in text
    assert len(text) < LINE_LENGTH + 100


TWICE = 'name = "ops"\nurl = "http://a"\n[[deployment.notifications]]\nname = "ops"\nurl = "http://b"'


def problem(tmp_path: Path, text: str) -> str:
    (tmp_path / "flyball.toml").write_text(f"[[deployment.notifications]]\n{text}")
    with pytest.raises(BadSettings) as caught:
        check_notifications(load(tmp_path))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "ops"', "set one of url, url_file and url_env"),
        ('name = "ops"\nurl = "http://a"\nurl_env = "X"', "set one of url, url_file and url_env"),
        ('name = "ops"\nurl = "ftp://a"', "is no address"),
        ('name = "ops"\nurl = "http://me:word@a"', "belongs into a file"),
        ('name = "Ops"\nurl = "http://a"', "String should match pattern"),
        ('name = "ops"\nurl = "http://a"\nevents = ["NODE_LOSED"]', "There is no event type 'NODE_LOSED'"),
        ('name = "ops"\nurl_env = "FLYBALL_TEST_NONE"', "FLYBALL_TEST_NONE is empty or missing"),
        ('name = "ops"\nurl_file = "none"', "cannot be read"),
        ('name = "ops"\nurl = "http://a"\ntoken_file = "open"', "can be read by others"),
        ('name = "ops"\nurl_file = "mine"', "its address is not http://"),
        ('name = "ops"\nurl_file = "far"', "its address is not http://"),
        ('name = "traces"\nurl = "http://a"', "is the name of the collector of traces"),
        (TWICE, "two webhooks are called ops"),
    ],
)  # fmt: skip
def test_unusable_webhook_is_refused(tmp_path: Path, text: str, message: str) -> None:
    files = (
        ("open", "token", 0o644),
        ("mine", "not an address", 0o600),
        ("far", "https://hook.example:99999/secret", 0o600),
    )
    for name, content, mode in files:
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    assert "secret" not in problem(tmp_path, text)
    assert message in problem(tmp_path, text)


async def test_secrets_come_from_files_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_server(OK) as server:
        (tmp_path / "url").write_text(server.url + "\n")
        (tmp_path / "url").chmod(0o600)
        monkeypatch.setenv("OPS_TOKEN", "secret")
        hook = NotificationSettings(name="ops", url_file=Path("url"), token_env="OPS_TOKEN", format="slack")
        webhook = Webhook.of(hook, tmp_path, "Run", CLOCK)
        await webhook.send([unblocked("x")])
    (request,) = server.requests
    assert request.headers["authorization"] == "Bearer secret"
    assert request.json()["text"].startswith("*Run*\n")
    assert "secret" not in repr(webhook)
    assert server.url not in repr(webhook)


def test_types_of_a_webhook_follow_its_patterns() -> None:
    hook = NotificationSettings(name="ops", url="http://a", events=("model.*", "NODE_LOST"))
    names = {payload.event_name for payload in Webhook.of(hook, Path(), "Run").types}
    assert {"MODEL_PROMOTED", "MODEL_ROLLED_BACK", "NODE_LOST"} <= names
    assert "NODE_RETURNED" not in names
