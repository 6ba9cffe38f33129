"""The acts of ``flyball up --profile demo``: scenarios in a row, in a run with short windows.

Each act says beforehand what is planted and which controllers should answer, and afterwards why they did.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from flyball.app.core import ConfigKey
from flyball.app.events import (
    CurriculumRebalanced,
    ExplorationBoost,
    ModelRolledBack,
    NodeQuarantined,
    Payload,
    PlateauDetected,
    RegressionDetected,
    TrainingBlockedByQuality,
    TrainingUnblocked,
)

STUCK, LEARNING = ConfigKey("tic_tac_toe_2p"), ConfigKey("connect_four_2p")


@dataclass(frozen=True, slots=True)
class Act:
    """One trouble of the demonstration.

    Attributes:
        title: the trouble in a few words.
        scenario: name in ``SCENARIOS``.
        key: the configuration that it strikes.
        planted: what is planted, and how it is marked in the journal.
        watch: what to watch for.
        answers: the controllers that should answer, in order, each with the events by which it does.
        commands: words of ``flyball`` commands that show it.
        page: path of the dashboard's page that shows it.
        waits: what the terminal waits for before the trouble is planted.
        explained: why the controllers decided so.
    """

    title: str
    scenario: str
    key: ConfigKey
    planted: str
    watch: str
    answers: Mapping[str, tuple[type[Payload], ...]]
    commands: Sequence[Sequence[str]]
    page: str
    waits: str
    explained: str


ACTS: Final[Sequence[Act]] = (
    Act(
        title="a game that stops learning",
        scenario="plateau",
        key=STUCK,
        planted=f"An operator's mistake: the learning rate of {STUCK} becomes 0.000001. The event's reason names "
        "the scenario.",
        watch="Its ratings stay flat: that is a stall. Exploration is boosted. Meanwhile its weight, the share of "
        f"worker time that is asked for, goes to {LEARNING}, which gains more. When boosts bring nothing, the game is "
        "plateaued. Then the learning rate is restored, and the weight comes back. This takes one to three minutes.",
        answers={
            "FeedbackLoopController": (PlateauDetected, ExplorationBoost),
            "CurriculumIntegration": (CurriculumRebalanced,),
        },
        commands=(("controllers", STUCK), ("state", STUCK)),
        page=f"/controllers/{STUCK}",
        waits=f"the process that plants it, and a champion of {STUCK}",
        explained="A stall is a slope of ratings whose upper confidence bound lies below a threshold, over a whole "
        "window: noise alone boosts nothing. Here a window spans six ratings, by default twenty. A boost helps a model "
        "that has stopped exploring; here it cannot help, because the learning rate is nearly zero. So the next "
        "ratings, under the boost, show a second stall, which raises the boost. Two stalls in a row, and a gain far "
        "below the other game's, make a plateau when the weights may change again. Compute follows the gain per second "
        "of worker time. A plateaued game keeps the least weight, so that its recovery is noticed. "
        "With the weight its turns come back, but the time that it spends rises less: it wants no games while its "
        "own model is trained and rated, and the other game has the worker meanwhile.",
    ),
    Act(
        title="a worker whose games have false results",
        scenario="bad-data",
        key=LEARNING,
        planted="A shard (a file of games to learn from) in which every player wins every game, from a worker called "
        "liar that does not exist.",
        watch="The quality monitor plays a sample of the games again, and the results differ: parity fails. Only the "
        "liar is stopped; the scenario then releases it, as an operator would who has repaired it.",
        answers={"FeedbackLoopController": (NodeQuarantined,)},
        commands=(("tail", "NODE_*"), ("state", LEARNING)),
        page="/events?pattern=NODE_*",
        waits="the process that plants it: it plays games, and falsifies their results",
        explained="Another worker's games of the same configuration follow the rules, so the fault is the worker's. "
        "One game that differs is enough, because a replay is exact. Its shards are dropped, it would play only "
        "probes, and training goes on with the others' games.",
    ),
    Act(
        title="the only worker's games contradict the rules",
        scenario="wrong-rules",
        key=LEARNING,
        planted="The same false results, in the name of the run's own worker, as after an update that changed the "
        "rules of the game.",
        watch=f"No worker is left to compare with. So nothing is quarantined: training of {LEARNING} is blocked, until "
        "three shards in a row follow the rules.",
        answers={"FeedbackLoopController": (TrainingBlockedByQuality, TrainingUnblocked)},
        commands=(("status",), ("doctor",)),
        page="/",
        waits="the process that plants it: it plays games, and falsifies their results",
        explained="A fault that all workers show is the configuration's. A model trained on such games would learn "
        "other rules, so a block begins at the first game that differs, and ends by evidence alone.",
    ),
    Act(
        title="a champion that plays badly",
        scenario="regression",
        key=LEARNING,
        planted="An operator's promotion: a copy of the champion that prefers its worst moves, under the champion's "
        "rating. The event says that the evidence is an operator's word.",
        watch="The new champion is rated at once, loses, and the one before it is restored. The games of the bad one "
        "are trained on no more.",
        answers={
            "ModelPerformanceWatchdog": (RegressionDetected,),
            "ModelLifecycleCoordinator": (ModelRolledBack,),
        },
        commands=(("league", LEARNING), ("state", LEARNING)),
        page=f"/configuration/{LEARNING}",
        waits=f"the process that plants it, and a champion of {LEARNING} that plays well enough to be spoiled",
        explained="The watchdog adds up evidence of a drop from game to game (a CUSUM test) and says how severe it is. "
        "The lifecycle rolls back severe and critical ones, from 50 Elo on; minor and moderate ones are left to later "
        "candidates. Those of this time are dropped without a verdict, if another model becomes current first, or "
        "rejected, because they were not trained from the current model.",
    ),
)


def settings_text() -> str:
    """Return the text of the demonstration's ``flyball.toml``."""
    return (files("flyball.app.scenarios") / "demonstration.toml").read_text(encoding="utf-8")
