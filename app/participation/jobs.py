"""The jobs of backend ``external``, where no participant does them.

Playing, training and evaluating are left to participants. A shard that no participant inspects is accepted as it was
delivered, and a model that became current counts as distributed, because nothing of it is in the run's store.
"""

from flyball.app.core import FlyballError, Report
from flyball.app.job_specs import DistributionResult, DistributionSpec, InspectionResult, InspectionSpec, job

REMEDY = "Run a participant: flyball participate KIND -- COMMAND, or flyball.participate in Python."


class LeftToParticipants(FlyballError):
    """A job of backend ``external`` was given to an installation's own processes, which cannot do it."""


def initialise(spec: object, report: Report) -> None:  # noqa: ARG001 - every job's signature
    """Refuse the job."""
    raise LeftToParticipants("Models of backend external are made, played and evaluated by participants.", hint=REMEDY)


play = train = match = initialise


@job
def inspect(spec: InspectionSpec, report: Report) -> InspectionResult:  # noqa: ARG001 - every job's signature
    """Accept a shard, unseen. Raises ``RepeatedShard`` for one that was delivered before."""
    from flyball.app.play.inspection import check_delivered_once  # imported late, because it takes PyTorch

    check_delivered_once(spec)
    return InspectionResult(score=1.0, components={}, checked=0, failures=())


@job
def distribute(spec: DistributionSpec, report: Report) -> DistributionResult:  # noqa: ARG001 - every job's signature
    """Accept a model, unseen; nothing is deleted."""
    return DistributionResult(model=spec.model)
