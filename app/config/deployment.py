"""Settings of an installation: hosts, addresses, monitoring; and the paths in a run folder."""

from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from app.config.devices import Compute, DeviceSettings, JobKind, PrecisionSettings
from app.config.ray import RaySettings
from app.config.settings import Settings

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
WandbMode = Literal["off", "offline", "online"]


class KeySettings(Settings):
    """Files and keys for a bus that other machines can reach (ADR-037). Paths are relative to the settings' folder."""

    secret: Path | None = Field(None, description="file of this machine's secret key: flyball keys new")
    broker: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="the head's public key; unset on the head")
    allowed: Path | None = Field(None, description="on the head: file of the admitted keys: flyball keys authorize")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.secret is None and (self.broker or self.allowed):
            raise ValueError("a secret key is missing: set deployment.keys.secret (flyball keys new NAME)")
        if self.secret is not None and (self.broker is None) == (self.allowed is None):
            raise ValueError(
                "set deployment.keys.allowed on the head, and deployment.keys.broker on all other machines"
            )
        return self


class JournalSettings(Settings):
    """What stays in the journal's file, and what is deleted for good (ADR-045)."""

    live_events: int = Field(
        1_000_000,
        ge=1,
        description="latest events in journal.sqlite; older ones move to the folder archive, compressed",
    )
    delete_days: float | None = Field(
        None, gt=0, description="archived events older than this are deleted for good; unset: never"
    )


class Deployment(Settings):
    """Settings that do not affect what is played and learned; they are not journaled."""

    node: str = Field("laptop", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    endpoint: str | None = Field(None, description="of the broker; unset: a socket of the run folder")
    keys: KeySettings = KeySettings()
    journal: JournalSettings = JournalSettings()
    heartbeat_seconds: float = Field(5.0, gt=0)
    drain_seconds: float = Field(10.0, ge=0, description="for running jobs when a daemon is asked to stop")
    log_level: LogLevel = "INFO"
    wandb: WandbMode = Field("off", description="curves at Weights & Biases, too: pip install 'flyball[wandb]'")
    threads_per_job: int = Field(1, ge=1)
    evaluation_processes: int = Field(1, ge=1, description="processes that play an evaluation's batches at once")
    engine: Literal["local", "ray"] = Field("local", description="where jobs run: this machine's processes, or Ray")
    ray: RaySettings = RaySettings()
    device: DeviceSettings = DeviceSettings()
    precision: PrecisionSettings = PrecisionSettings()

    def compute(self, kind: JobKind) -> Compute:
        """Return device and precision of a kind of job."""
        return Compute(device=getattr(self.device, kind), precision=getattr(self.precision, kind))

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, endpoint: str | None) -> str | None:
        if endpoint is None or endpoint.startswith("ipc://"):
            return endpoint
        if not endpoint.startswith("tcp://") or _port(endpoint) is None:
            raise ValueError(f"{endpoint!r} is no address: write ipc://PATH or tcp://127.0.0.1:PORT")
        return endpoint

    @model_validator(mode="after")
    def _protected(self) -> Self:
        unprotected = self.endpoint if self.keys.secret is None else None
        if unprotected and unprotected.startswith("tcp://") and not _is_loopback(urlsplit(unprotected).hostname or ""):
            raise ValueError(
                f"{unprotected!r} can be reached from other machines, and nothing would protect it; "
                "use tcp://127.0.0.1:PORT or leave the endpoint out, or make keys (flyball keys new NAME) and set "
                "deployment.keys"
            )
        return self


def _port(endpoint: str) -> int | None:
    try:
        return urlsplit(endpoint).port
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class RunFolder:
    """Names the paths in a run folder. Creates nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / "flyball.toml"
        self.journal = path / "journal.sqlite"
        self.store = path / "store"  # models and experience
        self.curves = path / "curves"  # a subfolder for each configuration
        self.up_lock = path / "up.lock"  # locked by `up` while it runs
        self.keys = path / "keys"  # secret keys, and the list of those that the broker admits
        self.ray_address = path / "ray" / "address"  # of the cluster that `up` started
        self.ray_token = path / "ray" / "token"
        self.board = path / "state" / "board.json"  # the counts of `up` and `status`

    def state(self, daemon: str) -> Path:
        """Return the file with a daemon's state."""
        return self.path / "state" / f"{daemon}.sqlite"

    def outbox(self, daemon: str) -> Path:
        """Return the file with the frames that a daemon could not send yet."""
        return self.path / "outbox" / f"{daemon}.sqlite"

    def log(self, daemon: str) -> Path:
        """Return a daemon's log file, JSON lines."""
        return self.path / "logs" / f"{daemon}.jsonl"

    def errors(self, daemon: str) -> Path:
        """Return the file with the stderr of a supervised daemon."""
        return self.path / "logs" / f"{daemon}.stderr"
