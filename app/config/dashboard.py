"""Settings of the dashboard."""

from ipaddress import ip_address
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from flyball.app.config.base import FrozenModel


class DashboardSettings(FrozenModel):
    """Address and access of the dashboard (ADR-035).

    Paths are relative to the settings' folder.
    """

    start: bool = Field(True, description="whether `flyball up` starts it on the head")
    address: str = Field("127.0.0.1", description="an IP address of this machine")
    port: int = Field(8417, ge=0, le=65535, description="0: any free port")
    names: tuple[str, ...] = Field((), description="further host names in its URL, such as a reverse proxy's")
    token: Path | None = Field(None, description="file of the token for actions; unset: read-only")

    @property
    def is_public(self) -> bool:
        """True if other machines can reach the dashboard."""
        return bool(self.names) or not ip_address(self.address).is_loopback

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        try:
            public = self.is_public
        except ValueError:
            raise ValueError(f"{self.address!r} is no IP address, such as 127.0.0.1") from None
        if public and self.token is None:
            raise ValueError(
                "dashboard.address and dashboard.names let other machines read logs and events; set dashboard.token, "
                "which is then needed for reading too, or reach it through ssh -L"
            )
        return self
