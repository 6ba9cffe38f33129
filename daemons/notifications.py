"""Webhooks that receive chosen events. Events are sent as CloudEvents, or as a text for Slack and its like."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyball.app.bus.keys import read_private
from flyball.app.config import BadSettings, RunSettings
from flyball.app.config.loading import Loaded
from flyball.app.config.monitoring import NotificationSettings, is_url
from flyball.app.core import Clock, FlyballError, derive_id
from flyball.app.events import CATALOGUE, Event, Payload, matching, traceparent_of
from flyball.app.status.summary import event_text, show_clock
from flyball.app.telemetry.webhook import post
from flyball.daemons.receivers import Terms

MOST_EVENTS = 100
"""Most events in a message."""

MOST_LINES, LINE_LENGTH = 20, 300
"""Most lines of a text, and characters of a line; Slack cuts texts of more than 40,000."""

SECONDS_PER_HOUR = 3600.0


def events_of(hook: NotificationSettings) -> frozenset[type[Payload]]:
    """Return the event types that a webhook receives. Raises ``UnknownEventType``."""
    if not hook.events:
        return frozenset(payload for payload in CATALOGUE if payload.notable)
    return frozenset(payload for pattern in hook.events for payload in matching(pattern))


def check_notifications(loaded: Loaded) -> None:
    """Check that the webhooks' events, addresses and tokens can be found. Raises ``BadSettings``."""
    for hook in loaded.deployment.notifications:
        Webhook.of(hook, loaded.folder, "")


@dataclass(frozen=True)
class Webhook:
    """A receiver of events.

    Attributes:
        name: the receiver's.
        types: the event types that it receives.
        configs: the configurations whose events it receives; empty: all.
        url: where messages go.
        token: bearer token, if there is one.
        is_slack: whether messages are texts.
        title: names the run in texts.
        clock: the time of day.
        settings: of the run; they name user-defined controllers.
        most: events in a message.
    """

    name: str
    types: frozenset[type[Payload]]
    configs: frozenset[str]
    url: str
    token: str | None
    is_slack: bool
    title: str
    clock: Clock | None = None
    settings: RunSettings | None = None
    most: int = MOST_EVENTS

    def __repr__(self) -> str:
        return f"Webhook({self.name!r})"  # without address and token, because a traceback may be logged

    @classmethod
    def of(
        cls,
        hook: NotificationSettings,
        folder: Path,
        title: str,
        clock: Clock | None = None,
        settings: RunSettings | None = None,
    ) -> "Webhook":
        """Return the webhook of some settings, whose files are relative to ``folder``. Raises ``BadSettings``."""
        where = f"deployment.notifications, {hook.name}"
        try:
            types = events_of(hook)
        except FlyballError as error:
            raise BadSettings(f"{where}: {error.message}", hint=error.hint) from error
        url = hook.url or _secret(hook.url_file, hook.url_env, folder, where)
        if not is_url(str(url)):  # the message does not show the address, which may have a secret in it
            raise BadSettings(f"{where}: its address is not http://HOST:PORT/PATH or https://HOST/PATH.")
        token = _secret(hook.token_file, hook.token_env, folder, where)
        configs, is_slack = frozenset(hook.configs), hook.format == "slack"
        return cls(hook.name, types, configs, str(url), token, is_slack, title, clock, settings)

    def wants(self, event: Event[Any]) -> bool:
        """See ``Receiver.wants``."""
        return not self.configs or event.subject in self.configs or not event.subject

    async def send(self, events: Sequence[Event[Any]]) -> None:
        """See ``Receiver.send``."""
        assert self.clock is not None
        kind, content = "application/cloudevents-batch+json", cloudevents(events)
        if self.is_slack:
            kind, content = "application/json", {"text": slack_text(events, self.title, self.settings)}
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            # The same message has the same key, so a receiver can recognise one that it has taken already.
            "Idempotency-Key": derive_id(self.name, *(event.id for event in events)),
        }
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        await post(self.url, json.dumps(content).encode(), headers, self.clock.now())


def terms_of(hook: NotificationSettings) -> Terms:
    """Return the terms of delivery to a webhook."""
    return Terms(hook.pause_seconds, hook.timeout_seconds, hook.give_up_hours * SECONDS_PER_HOUR)


def cloudevents(events: Sequence[Event[Any]]) -> Any:
    """Return events as a batch of CloudEvents, each with its trace context."""
    return [event.to_cloudevent() | {"traceparent": traceparent_of(event.envelope)} for event in events]


def slack_text(events: Sequence[Event[Any]], title: str, settings: RunSettings | None = None) -> str:
    """Return events as lines of text. Events of one type and configuration share a line, which shows the latest.

    ``settings`` of the run name user-defined controllers.
    """
    latest: dict[tuple[str, str], tuple[Event[Any], int]] = {}
    for event in events:
        about = event.data.event_name, event.subject
        _, times = latest.pop(about, (event, 0))
        latest[about] = event, times + 1
    lines = [_line(event, times, settings) for event, times in latest.values()]
    more = len(lines) - MOST_LINES
    shown = [*lines[:MOST_LINES], *([f"… and {more} more"] if more > 0 else [])]
    return "\n".join([f"*{_escaped(title)}*", *shown])


def _line(event: Event[Any], times: int, settings: RunSettings | None) -> str:
    text = event_text(event, settings).plain
    text = text if len(text) <= LINE_LENGTH else text[: LINE_LENGTH - 1] + "…"
    often = f" ({times} times)" if times > 1 else ""
    return f"{show_clock(event.recordedtime)} {_escaped(text)}{often}"


def _escaped(text: str) -> str:
    """Escape Slack's control characters, because otherwise an error's text could mention everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _secret(file: Path | None, variable: str | None, folder: Path, where: str) -> str | None:
    """Return a secret from a file or an environment variable. None if neither is named. Raises ``BadSettings``."""
    if file is not None:
        try:
            text = read_private(folder / file)
        except FlyballError as error:
            raise BadSettings(f"{where}: {error.message}", hint=error.hint) from error
    elif variable is not None:
        text = os.environ.get(variable, "").strip()
    else:
        return None
    if not text:
        raise BadSettings(f"{where}: {file or f'the environment variable {variable}'} is empty or missing.")
    return text
