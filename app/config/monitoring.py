"""Settings of metrics, traces and notifications, which leave a run for the operator's tools (ADR-036)."""

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from flyball.app.config.base import FrozenModel
from flyball.app.core import ConfigKey

SCHEMES = ("http", "https")
COLLECTOR = "traces"
"""Name of the collector of traces among the receivers of events."""


def is_url(text: str) -> bool:
    """Return whether a text is an HTTP or HTTPS URL."""
    try:
        parts = urlsplit(text)
        return parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _checked_url(url: str) -> str:
    """Return an HTTP or HTTPS URL unchanged. Raises ``ValueError`` for any other text."""
    if not is_url(url):
        raise ValueError(f"{url!r} is no address: write http://HOST:PORT/PATH or https://HOST/PATH")
    return url


class MetricsSettings(FrozenModel):
    """Address of the daemon ``monitoring`` for Prometheus.

    There is no password: limit who can reach the address.
    """

    port: int | None = Field(None, ge=1, le=65535, description="on the head; unset: no metrics")
    host: str = Field("127.0.0.1", min_length=1, description="address of the head that the port is opened at")


class NotificationSettings(FrozenModel):
    """A webhook, and the events that it receives.

    A URL with a secret in it is read from a file or from the environment, because settings are shown and copied.
    """

    name: str = Field(pattern="^[a-z][a-z0-9_]{0,39}$", description="unique; names it in logs and metrics")
    url: str | None = Field(None, description="without secrets in it")
    url_file: Path | None = Field(None, description="file that holds the URL, readable by its owner only")
    url_env: str | None = Field(None, description="environment variable that holds the URL")
    token_file: Path | None = Field(None, description="file with a bearer token, readable by its owner only")
    token_env: str | None = Field(None, description="environment variable with a bearer token")
    format: Literal["cloudevents", "slack"] = Field(
        "cloudevents", description="a batch of CloudEvents in JSON, or a text that Slack and its like show"
    )
    events: tuple[str, ...] = Field(
        (), description="event names and patterns, as of flyball tail; empty: all that stay on the screen of up"
    )
    configs: tuple[ConfigKey, ...] = Field((), description="only events about these, and about the run; empty: all")
    pause_seconds: float = Field(
        10.0, ge=0, le=86400, description="least time between two messages; the next tells of all events in between"
    )
    timeout_seconds: float = Field(10.0, gt=0, le=600, description="for one attempt")
    give_up_hours: float = Field(24.0, gt=0, description="after which a message that cannot be delivered is dropped")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is not None:
            _checked_url(url)
            if "@" in urlsplit(url).netloc:
                raise ValueError("a URL with a password belongs into a file: set url_file or url_env")
        return url

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name == COLLECTOR:  # both would share one position in the journal, and miss events
            raise ValueError(f"{COLLECTOR!r} is the name of the collector of traces")
        return name

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        if (self.url, self.url_file, self.url_env).count(None) != 2:
            raise ValueError("set one of url, url_file and url_env")
        if self.token_file is not None and self.token_env is not None:
            raise ValueError("set one of token_file and token_env")
        return self


class TraceSettings(FrozenModel):
    """The OpenTelemetry collector that gets the events as spans: pip install 'flyball[otel]'."""

    endpoint: str | None = Field(
        None,
        description="OTLP over HTTP: http://127.0.0.1:4318/v1/traces; unset: no traces. Its headers are read from "
        "OTEL_EXPORTER_OTLP_HEADERS",
    )

    @field_validator("endpoint")
    @classmethod
    def _check_url(cls, endpoint: str | None) -> str | None:
        return endpoint and _checked_url(endpoint)
