"""Settings of an installation, such as hosts, addresses and monitoring, and the paths in a run folder."""

import os
import re
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from flyball.app.config.base import FrozenModel
from flyball.app.config.dashboard import DashboardSettings
from flyball.app.config.devices import (
    Compute,
    DeviceSettings,
    JobKind,
    PrecisionSettings,
    ProcessesPerTraining,
    TextServers,
)
from flyball.app.config.journal_address import check_url
from flyball.app.config.monitoring import MetricsSettings, NotificationSettings, TraceSettings
from flyball.app.config.ray import RaySettings
from flyball.app.config.store_address import CACHE, CACHE_GIB, StoreAddress
from flyball.app.core.hosts import is_loopback

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
WandbMode = Literal["off", "offline", "online"]
NODE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"


ADAPTERS = "adapters"
"""Folder in a run folder from which servers load adapters."""

STORE = "store"
"""Value of ``journal.ship`` that stands for the run's store."""

LEAST_BEATS = 2
"""Fewest signs of life due before a silent daemon counts as lost."""


class KeySettings(FrozenModel):
    """Files and keys for a bus that other machines can reach.

    See ADR-008. Paths are relative to the settings' folder.
    """

    secret: Path | None = Field(None, description="file of this machine's secret key: flyball keys new")
    broker: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="the head's public key; unset on the head")
    allowed: Path | None = Field(None, description="on the head: file of the admitted keys: flyball keys authorize")

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.secret is None and (self.broker or self.allowed):
            raise ValueError("a secret key is missing: set deployment.keys.secret (flyball keys new NAME)")
        if self.secret is not None and (self.broker is None) == (self.allowed is None):
            raise ValueError(
                "set deployment.keys.allowed on the head, and deployment.keys.broker on all other machines"
            )
        return self


class JobProcesses(FrozenModel):
    """Numbers of jobs that this machine runs at once, by kind.

    All evaluation processes share one evaluation, because it has many parts.
    """

    selfplay: int = Field(1, ge=1, description="requests of self-play at once")
    inspection: int = Field(1, ge=1, description="inspections of shards at once")
    training: int = Field(1, ge=1, description="trainings at once")
    evaluation: int = Field(1, ge=1, description="processes that share an evaluation")


class JournalSettings(FrozenModel):
    """The journal's place (ADR-040), limits of its file and archive (ADR-006), and shipping (ADR-042)."""

    url: str | None = Field(
        None,
        description="of a PostgreSQL database: postgresql://HOST/DATABASE; short: journal = URL; unset: a file of the "
        "run folder",
    )
    live_events: int = Field(
        250_000, ge=1, description="latest events in journal.sqlite; older ones move to the folder archive, compressed"
    )
    delete_days: float | None = Field(
        None, gt=0, description="archived events older than this are deleted for good; unset: never"
    )
    ship: str | None = Field(
        None,
        description="place to which the journal is copied while it grows: a folder on another disk, or a URL as in "
        "deployment.store; store: deployment.store itself; unset: it is not copied",
    )
    ship_seconds: float = Field(2.0, gt=0, description="between two shipments")

    @field_validator("ship")
    @classmethod
    def _check_ship(cls, ship: str | None) -> str | None:
        if ship is not None:
            StoreAddress.parse(ship)
        return ship

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        return None if url is None else check_url(url)


class TextSettings(FrozenModel):
    """Servers that generate the text of backend ``language`` (ADR-031)."""

    servers: tuple[str, ...] = Field(
        (), description="addresses of vLLM servers, such as http://127.0.0.1:8000; none: the jobs generate themselves"
    )
    adapters: Path | None = Field(
        None,
        description="folder out of which the servers load adapters, at the same path where they run; unset: the "
        "folder adapters in the run folder",
    )

    @field_validator("servers")
    @classmethod
    def _check_addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for address in servers:
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
                raise ValueError(f"{address!r} is no address of a server: write http://HOST:PORT")
        if len({*servers}) < len(servers):
            raise ValueError("two servers have the same address")
        return servers


def _node_of(data: dict[str, Any]) -> str:
    """Return this machine's default name: the host's, if a secret key shows that others take part, or ``laptop``."""
    keys: KeySettings | None = data.get("keys")  # None: they are invalid, which is an error of its own
    host = os.uname().nodename.partition(".")[0]
    return host if keys and keys.secret and re.fullmatch(NODE_PATTERN, host) else "laptop"


class Deployment(FrozenModel):
    """Settings that do not affect what is played and learned.

    These settings are not journaled.
    """

    keys: KeySettings = KeySettings()
    node: str = Field(
        default_factory=_node_of, pattern=NODE_PATTERN, description="unset: the host's name with keys, else laptop"
    )
    endpoint: str | None = Field(None, description="of the broker; unset: a socket of the run folder")
    other_head: str | None = Field(
        None, description="address of the other head's broker, where two heads share a journal on PostgreSQL"
    )
    journal: JournalSettings = JournalSettings()
    dashboard: DashboardSettings = DashboardSettings()
    store: str | None = Field(
        None,
        description="of models and experience: a folder, or a URL such as s3://BUCKET/PREFIX?endpoint_url=URL; unset: "
        "the folder store in the run folder",
    )
    store_gib: float = Field(
        50.0,
        gt=0,
        description="most that a store in the run's own folder takes, in GiB: then self-play waits; near it, what "
        "nothing needs is deleted, oldest first",
    )
    cache_gib: float = Field(8.0, gt=0, description="most that this machine keeps of a store by URL, in GiB")
    heartbeat_seconds: float = Field(2.0, gt=0, description="between a daemon's signs of life to the broker")
    node_silent_seconds: float = Field(
        9.0, gt=0, description="on the head: a daemon without a sign of life for this time is lost"
    )
    drain_seconds: float = Field(10.0, ge=0, description="for running jobs when a daemon is asked to stop")
    log_level: LogLevel = Field("INFO", description="least level of the lines in the logs")
    metrics: MetricsSettings = MetricsSettings()
    traces: TraceSettings = TraceSettings()
    notifications: tuple[NotificationSettings, ...] = Field((), description="webhooks: [[deployment.notifications]]")
    wandb: WandbMode = Field("off", description="curves at Weights & Biases, too: pip install 'flyball[wandb]'")
    fork_server: bool = Field(
        True,
        description="whether `up` forks daemons, and CPU jobs, from a process that has imported everything, on Linux",
    )
    threads_per_job: int = Field(1, ge=1, description="threads of numerical libraries in each process of jobs")
    processes_per_training: ProcessesPerTraining = 1
    processes: JobProcesses = JobProcesses()
    engine: Literal["local", "ray"] = Field("local", description="where jobs run: this machine's processes, or Ray")
    ray: RaySettings = RaySettings()
    device: DeviceSettings = DeviceSettings()
    precision: PrecisionSettings = PrecisionSettings()
    text: TextSettings = TextSettings()

    @property
    def is_monitored(self) -> bool:
        """True if the daemon ``monitoring`` has anything to do."""
        return bool(self.metrics.port or self.traces.endpoint or self.notifications)

    @property
    def store_bytes(self) -> int:
        """The bound of a store in a folder."""
        return round(self.store_gib * (1 << 30))

    def compute(self, kind: JobKind) -> Compute:
        """Return device, precision and processes of a kind of job."""
        processes = self.processes_per_training if kind == "training" else 1
        return Compute(device=getattr(self.device, kind), precision=getattr(self.precision, kind), processes=processes)

    def text_servers(self, run: Path, settings_folder: Path) -> TextServers | None:
        """Return the servers that generate text, as jobs get them; None if no server is set."""
        if not self.text.servers:
            return None
        folder = run / ADAPTERS if self.text.adapters is None else settings_folder / self.text.adapters
        return TextServers(addresses=self.text.servers, folder=str(folder.absolute()))

    def store_name(self, run: "RunFolder", settings_folder: Path) -> str:
        """Return the store's name as jobs get it: an absolute folder, or a URL with this machine's cache."""
        if self.store is None:
            return str(run.store.absolute())
        address = StoreAddress.parse(self.store)
        if address.is_folder:
            return _absolute(address, settings_folder)
        cached = {CACHE: str(run.cache.absolute()), CACHE_GIB: self.cache_gib}
        return str(address.replace_options({**address.options, **cached}))

    def ship_name(self, settings_folder: Path) -> str | None:
        """Return the place to which the journal is shipped, an absolute folder or a URL; None without one."""
        name = self.store if self.journal.ship == STORE else self.journal.ship
        return None if name is None else _absolute(StoreAddress.parse(name), settings_folder)

    @field_validator("store")
    @classmethod
    def _check_store(cls, store: str | None) -> str | None:
        if store is not None:
            StoreAddress.parse(store)
        return store

    @field_validator("notifications")
    @classmethod
    def _check_names(cls, hooks: tuple[NotificationSettings, ...]) -> tuple[NotificationSettings, ...]:
        names = [hook.name for hook in hooks]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two webhooks are called {min(twice)}")
        return hooks

    @field_validator("endpoint", "other_head")
    @classmethod
    def _check_address(cls, endpoint: str | None) -> str | None:
        if endpoint is None or endpoint.startswith("ipc://"):
            return endpoint
        if not endpoint.startswith("tcp://") or _port(endpoint) is None:
            raise ValueError(f"{endpoint!r} is no address: write ipc://PATH or tcp://127.0.0.1:PORT")
        return endpoint

    @model_validator(mode="after")
    def _check_shipping(self) -> Self:
        if self.journal.ship is not None and self.journal.url is not None:
            raise ValueError("journal.ship is for a journal in a file; replicate the database of journal.url instead")
        if self.journal.ship == STORE and self.store is None:
            raise ValueError(
                "journal.ship is the store, and that is in the run folder, on the disk of the journal; set store, or "
                "name a folder on another disk in journal.ship"
            )
        return self

    @model_validator(mode="after")
    def _check_heartbeats(self) -> Self:
        if self.node_silent_seconds < LEAST_BEATS * self.heartbeat_seconds:
            raise ValueError(
                f"node_silent_seconds {self.node_silent_seconds:g} has to be at least {LEAST_BEATS} times "
                f"heartbeat_seconds {self.heartbeat_seconds:g}; otherwise living daemons would be reported as lost"
            )
        return self

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        for address in (self.endpoint, self.other_head) if self.keys.secret is None else ():
            if address and address.startswith("tcp://") and not is_loopback(urlsplit(address).hostname or ""):
                raise ValueError(
                    f"{address!r} can be reached from other machines, and nothing would protect it; "
                    "use tcp://127.0.0.1:PORT or leave the endpoint out, or make keys (flyball keys new NAME) and set "
                    "deployment.keys"
                )
        return self

    @model_validator(mode="after")
    def _check_other_head(self) -> Self:
        if self.other_head is not None and self.other_head == self.endpoint:
            raise ValueError(f"other_head {self.other_head!r} is this head's endpoint; name the other head's")
        return self


def _absolute(address: StoreAddress, settings_folder: Path) -> str:
    """Return an address whose folder, if it is one, is relative to the settings' folder."""
    return str((settings_folder / address.root).absolute()) if address.is_folder else str(address)


def _port(endpoint: str) -> int | None:
    try:
        return urlsplit(endpoint).port
    except ValueError:
        return None


class RunFolder:
    """Names the paths in a run folder. Creates nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / "flyball.toml"
        self.journal = path / "journal.sqlite"
        self.journal_id = path / "journal.id"  # of a journal in a database: its id, after the first start
        self.store = path / "store"  # models and experience, unless the settings name another
        self.cache = path / "cache"  # of a store by URL
        self.curves = path / "curves"  # a subfolder for each configuration
        self.games = path / "games"  # kept games of people; nothing learns from them
        self.up_lock = path / "up.lock"  # locked by `up` while it runs
        self.keys = path / "keys"  # secret keys, and the list of those that the broker admits
        self.ray_address = path / "ray" / "address"  # of the cluster that `up` started
        self.ray_token = path / "ray" / "token"
        self.board = path / "state" / "board.json"  # the counts of `up` and `status`
        self.shipping = path / "state" / "shipping.json"  # how far the journal is shipped

    @property
    def has_journal(self) -> bool:
        """True if a run was begun here."""
        return self.journal.exists() or self.journal_id.exists()

    def state(self, daemon: str, node: str) -> Path:
        """Return the file with a daemon's state."""
        return self.path / "state" / f"{daemon}@{node}.sqlite"

    def outbox(self, daemon: str, node: str) -> Path:
        """Return the file with frames that a daemon could not send yet."""
        return self.path / "outbox" / f"{daemon}@{node}.sqlite"

    def log(self, daemon: str) -> Path:
        """Return a daemon's log file, JSON lines."""
        return self.path / "logs" / f"{daemon}.jsonl"

    def errors(self, daemon: str) -> Path:
        """Return the file with the stderr of a supervised daemon."""
        return self.path / "logs" / f"{daemon}.stderr"
