"""Settings of jobs on a Ray cluster."""

from typing import Annotated, Literal

from pydantic import Field

from flyball.app.config.base import FrozenModel

SharedJobs = Literal["selfplay", "inspection", "training", "evaluation"]
"""A kind of job that any machine can run."""

Amount = Annotated[float, Field(gt=0)]


class RayDemand(FrozenModel):
    """Resources that a job of a kind occupies on a Ray node.

    The job runs where all of them are free.
    """

    cpus: float = Field(1.0, gt=0, description="also the threads of numerical libraries, rounded down, at least 1")
    gpus: float = Field(0.0, ge=0, description="0.25: four jobs share a GPU; the kind's device has to be cuda")
    tags: dict[str, Amount] = Field(default_factory=dict, description="custom resources that nodes were started with")

    @property
    def resources(self) -> dict[str, float]:
        """All that a job occupies, by Ray's names."""
        return {"CPU": self.cpus, **({"GPU": self.gpus} if self.gpus else {}), **self.tags}


class RaySettings(FrozenModel):
    """The cluster, and what each kind of job occupies of it."""

    address: str | None = Field(None, description="HOST:PORT of the cluster; unset: `flyball up` starts one here")
    cpus: int | None = Field(None, ge=1, description="of the cluster that `flyball up` starts; unset: all of them")
    object_store_megabytes: int = Field(256, ge=80, description="of the cluster that `flyball up` starts")
    selfplay: RayDemand = RayDemand()
    inspection: RayDemand = RayDemand()
    training: RayDemand = RayDemand()
    evaluation: RayDemand = RayDemand()

    def demand(self, jobs: SharedJobs) -> RayDemand:
        """Return what one job of a kind occupies."""
        demand: RayDemand = getattr(self, jobs)
        return demand
