"""Exports to the operator's tools: metrics over HTTP, messages to webhooks, and spans."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import structlog
from prometheus_client import CollectorRegistry

from flyball.app.bus import Bus
from flyball.app.bus.ports import BrokerUnavailable
from flyball.app.config import RunFolder
from flyball.app.config.loading import Loaded
from flyball.app.config.monitoring import COLLECTOR, MetricsSettings
from flyball.app.controllers.fold import Fold
from flyball.app.events.frames import DamagedRecord
from flyball.app.journal import SqliteStateStore
from flyball.app.journal.database import StorageError
from flyball.app.journal.history import open_dead_letters
from flyball.app.journal.opening import journal_of
from flyball.app.journal.ports import JournalLocation
from flyball.app.status.metrics import Exposition, Storage, View
from flyball.app.status.monitored import ConfigFold, DaemonFold, EventCounts
from flyball.app.status.status import ask_presence
from flyball.app.telemetry.spans import SpanReceiver, otlp_exporter
from flyball.daemons.clock import SystemClock
from flyball.daemons.metrics_server import answering
from flyball.daemons.notifications import Webhook, terms_of
from flyball.daemons.receivers import RECEIVERS, Outlet, Terms
from flyball.daemons.shipping import shipping_of

ASK_SECONDS = 5.0
"""Longest wait, in seconds, for the broker's table of daemons, and for a collector of traces to answer."""

SPAN_PAUSE_SECONDS = 1.0
SPANS_GIVE_UP_SECONDS = 24 * 3600.0


class Exports:
    """The companion of the monitoring daemon; see ``Companion``."""

    def __init__(self, loaded: Loaded, folder: RunFolder) -> None:
        self._loaded, self._deployment, self._folder = loaded, loaded.deployment, folder
        self._journal = journal_of(folder, loaded.deployment.journal)
        self._clock = SystemClock()
        self._view: View | None = None
        self._outlets: dict[str, Outlet] = {}

    def show(self, fold: Fold, head: int) -> None:
        """See ``Companion.show``. The rows are copied, because Prometheus is answered by another thread."""
        if fold.settings is None:
            return
        before = self._view
        self._view = View(
            now=self._clock.now(),
            head=head,
            settings=fold.settings,
            states=dict(fold.states),
            configs=dict(fold.rows(ConfigFold.name)),
            daemons=dict(fold.rows(DaemonFold.name)),
            counts=dict(fold.rows(EventCounts.name)),
            presence=before.presence if before else None,
        )

    async def run(self, bus: Bus) -> None:
        """See ``Companion.run``."""
        file = self._folder.state(RECEIVERS, self._deployment.node)
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(SqliteStateStore(file)) as states, self._answering(), self._spans() as spans:
            for hook in self._deployment.notifications:
                title = f"Flyball, {self._folder.path.absolute().name} on {self._deployment.node}"
                webhook = Webhook.of(hook, self._loaded.folder, title, self._clock, self._loaded.run)
                self._outlets[hook.name] = Outlet(webhook, terms_of(hook), states, self._clock)
            if spans:
                terms = Terms(SPAN_PAUSE_SECONDS, 2 * ASK_SECONDS, SPANS_GIVE_UP_SECONDS)
                self._outlets[COLLECTOR] = Outlet(spans, terms, states, self._clock)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask(bus))
                for outlet in self._outlets.values():
                    group.create_task(outlet.run(bus))

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Answer Prometheus, if a port is set. See ``answering``."""
        where: MetricsSettings = self._deployment.metrics
        if where.port is None:
            yield
            return
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Exposition(self._present))
        with answering(where.host, where.port, registry):
            structlog.get_logger("monitoring").info("metrics", url=f"http://{where.host}:{where.port}/metrics")
            yield

    @contextmanager
    def _spans(self) -> Iterator[SpanReceiver | None]:
        endpoint = self._deployment.traces.endpoint
        if endpoint is None:
            yield None
            return
        receiver = SpanReceiver(otlp_exporter(endpoint, ASK_SECONDS))
        try:
            yield receiver
        finally:
            receiver.close()

    async def _ask(self, bus: Bus) -> None:
        """Keep the broker's table of daemons up to date."""
        while True:
            presence = None
            with suppress(BrokerUnavailable, TimeoutError):
                async with asyncio.timeout(ASK_SECONDS):
                    presence = await ask_presence(bus)
            if self._view:
                self._view = replace(self._view, presence=presence)
            await asyncio.sleep(self._deployment.heartbeat_seconds)

    def _present(self) -> View | None:
        """Return the view at this moment; None before there is one. The thread that answers Prometheus calls this."""
        if (view := self._view) is None:
            return None
        deliveries = {name: outlet.delivery(view.head) for name, outlet in self._outlets.items()}
        storage = storage_of(self._folder, self._loaded, self._journal)
        return replace(view, now=self._clock.now(), storage=storage, deliveries=deliveries)


def storage_of(folder: RunFolder, loaded: Loaded, journal: JournalLocation) -> Storage | None:
    """Return the sizes of a run's files. None if the journal cannot be read."""
    try:
        with closing(journal.reader()) as reader:
            dead_letters, size = len(open_dead_letters(reader)), reader.size()
            shipping = shipping_of(folder, loaded, reader, SystemClock().now())
        disk = shutil.disk_usage(folder.path)
    except (StorageError, DamagedRecord, OSError):  # a file was just replaced, or is damaged, which the broker reports
        return None
    return Storage(
        size.bytes - size.archive_bytes,
        size.archive_bytes,
        free=disk.free,
        size=disk.total,
        dead_letters=dead_letters,
        unshipped=shipping.events if shipping else None,
        unshipped_seconds=shipping.seconds if shipping else None,
    )
