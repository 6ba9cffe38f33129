"""dead-node: a self-play worker receives a request, and falls silent.

The scenario announces a worker repeatedly until a request for games is addressed to it, and then stops.
"""

from flyball.app.controllers.scheduler import WORKER_DAEMON
from flyball.app.events import DaemonReady, DaemonStopped, NodeLost, SelfplayComplete, SelfplayRequested
from flyball.app.scenarios.plan import ConfigView, Expected, Plan, Scenario
from flyball.app.store import BlobStore

NODE = "ghost"
WORKER = f"{WORKER_DAEMON}@{NODE}"


def _lacks(view: ConfigView, store: BlobStore) -> str | None:  # noqa: ARG001 - a scenario's
    return "has no current model yet" if view.model is None else None


def _plan(view: ConfigView, store: BlobStore) -> Plan:  # noqa: ARG001 - a scenario's
    ready = DaemonReady(daemon=WORKER_DAEMON, node=NODE, position=0, capacity=1)
    return Plan(
        key=None,
        trouble=ready,
        expected=(
            Expected(
                "struck",
                SelfplayRequested,
                lambda event, _: event.data.worker == WORKER,
                "Other workers have room, or no configuration lacks games: they do when the next model comes.",
            ),
            Expected(
                "detected",
                NodeLost,
                lambda event, _: event.data.node == NODE,
                "The broker reports it after deployment.node_silent_seconds: is it the head's Flyball that runs?",
            ),
            Expected(
                "decided",
                SelfplayRequested,
                lambda event, steps: event.subject == steps[0].subject and event.data.worker != WORKER,
                "No other worker has room.",
            ),
            Expected(
                "recovered",
                SelfplayComplete,
                lambda event, steps: event.data.request_id == steps[-1].id,
                "The worker that it was asked of may be slow.",
            ),
        ),
        remains="After some seconds of silence (deployment.node_silent_seconds) the ghost's request goes to another.",
        remedy=DaemonStopped(daemon=WORKER_DAEMON, node=NODE, position=0),
        remedy_after=3,
        pulse=ready,
    )


SCENARIO = Scenario("dead-node", "a worker that takes a request and dies", _lacks, _plan, takes_config=False)
