"""Cost of an event in the simulated loop, by controller. It must not grow with the number of configurations."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import process_time

import pytest
from simulated_settings import simulated_settings

from flyball.app.config import GAMES
from flyball.app.controllers import Controller, FeedbackFold
from flyball.app.controllers.fold import Fold
from flyball.app.core import ConfigKey
from flyball.app.simulation import ALL, ARMS, Simulation, load_plant
from flyball.app.simulation.settings import ROWS_PER_TRAINING

SIZES = ((12, 36), (1_000, 100), (10_000, 1_000))
EVENTS = 20_000
WARM_HOURS = 2
BOUND = 2.0
EQUAL_BOUND = 1.5
"""Where nodes and configurations grow alike."""

HOUR_US = 3_600_000_000


@dataclass
class Times:
    """Seconds spent in each controller."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def timed(controller: type[Controller], times: Times) -> type[Controller]:
    """Return the controller with timed steps."""

    def step(self, rows, event, *states):
        began = process_time()
        done = controller.step(self, rows, event, *states)
        times.seconds[controller.name] += process_time() - began
        return done

    return type(controller.__name__, (controller,), {"step": step})


def timed_fold(times: Times) -> type[FeedbackFold]:
    """Return the fold of FeedbackState with timed steps."""

    def step(self, rows, event):
        began = process_time()
        done = FeedbackFold.step(self, rows, event)
        times.seconds[FeedbackFold.name] += process_time() - began
        return done

    return type(FeedbackFold.__name__, (FeedbackFold,), {"step": step})


@dataclass
class Cost:
    """Costs at one size, in µs an event."""

    total: float
    controllers: Mapping[str, float]
    events: int

    @property
    def folding(self) -> float:
        return sum(self.controllers.values())


def warm(simulation: Simulation) -> None:
    """Run until all configurations play, as their starts are unusual events."""
    simulation.start()
    simulation.continue_until(simulation.agenda.now_us + WARM_HOURS * HOUR_US)


def measure(configs: int, nodes: int) -> Cost:
    times = Times()
    arm = tuple(timed(controller, times) for controller in ARMS[ALL])
    model = GAMES[ConfigKey("connect_four_2p")].replace(rows_per_training=ROWS_PER_TRAINING)
    settings = simulated_settings(
        nodes, [model.replace(key=ConfigKey(f"scale_{number}_2p")) for number in range(configs)]
    )
    simulation = Simulation(settings, load_plant(), arm, seed=1, seconds=7 * 86_400)
    simulation.fold = Fold((timed_fold(times), *arm))
    warm(simulation)
    times.seconds.clear()
    first, began = simulation.broker.head, process_time()
    while simulation.broker.head - first < EVENTS:
        simulation.continue_until(simulation.agenda.now_us + HOUR_US // 60)
    seconds, events = process_time() - began, simulation.broker.head - first
    return Cost(seconds / events * 1e6, {name: t / events * 1e6 for name, t in times.seconds.items()}, events)


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_cost_of_an_event_does_not_grow_with_configurations() -> None:
    costs = {size: measure(*size) for size in SIZES}
    print()  # noqa: T201
    for (configs, nodes), cost in costs.items():
        parts = ", ".join(f"{name} {us:.1f}" for name, us in sorted(cost.controllers.items(), key=lambda one: -one[1]))
        print(f"{configs:>6} configurations x {nodes:>5} nodes: {cost.total:6.1f} µs an event ({parts})")  # noqa: T201
    small, middle, large = costs.values()
    for name, other in (("small", small), ("middle", middle)):
        ratio, folding = large.total / other.total, large.folding / other.folding
        print(f"large / {name}: {ratio:.2f} in all, {folding:.2f} in controllers")  # noqa: T201
    # The small cluster has thirty times as many nodes, and so events, for each configuration. So occasional work for
    # a configuration is spread over more events.
    assert large.total <= BOUND * small.total
    assert large.folding <= EQUAL_BOUND * middle.folding
