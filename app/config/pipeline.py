"""Settings of ``flyball train``."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationError, model_validator

from flyball.app.config.base import FrozenModel
from flyball.app.config.deployment import LogLevel, WandbMode
from flyball.app.config.devices import Compute, Device, Precision, ProcessesPerTraining
from flyball.app.config.layers import REMOVED, flatten
from flyball.app.config.settings import (
    DEFAULT_BACKEND,
    MLP,
    REPLAY_ROWS,
    SEARCH_BACKEND,
    Blocks,
    Channels,
    EvaluationSettings,
    Filters,
    GaeLambda,
    GameConfig,
    Gamma,
    NetworkKind,
    NetworkOptions,
    NetworkSettings,
    Openings,
    PolicyHead,
    PpoSettings,
    Residual,
    Rewards,
    SearchSettings,
    SqueezeExcite,
    Width,
)
from flyball.app.core import HEURISTIC, RANDOM, ConfigKey

SELF = "self"
"""The opponent that stands for self-play: the policy takes every seat."""

TrainedBackend = Literal["policy_gradient", "search"]
TRAINED_BACKENDS: tuple[TrainedBackend, ...] = get_args(TrainedBackend)
"""Backends that ``flyball train`` knows."""

TABLES: dict[TrainedBackend, str] = {"policy_gradient": "ppo", "search": "search"}
"""Each backend's own table of settings."""


class EnvSettings(FrozenModel):
    """Rules, rewards and seats of the games to learn from."""

    reward_mode: Rewards = "terminal"
    collect_all_seats: bool = Field(True, description="learn from every seat of self-play games")
    game: str | None = Field(
        None, description="game string that replaces the configuration's, such as 'hearts(hands=4)'"
    )


class CollectionSettings(FrozenModel):
    """Number, sampling and opponents of an iteration's games."""

    games_per_iteration: int = Field(256, ge=1, description="games before each update")
    num_iterations: int = Field(100, ge=1, description="iterations of collecting and updating")
    initial_policy: Literal["random", "behavioral_clone"] = Field(
        "random", description="random, or a behavioral clone: see cloning"
    )
    temperature: float = Field(1.0, gt=0, le=10, description="divides the policy's logits before sampling")
    opening_plies: Openings = 0
    opponents: dict[str, float] = Field(
        {SELF: 1.0}, description="shares of games by opponent: 'self', or a bot in all other seats"
    )
    device: Device | None = Field(None, description="device of the policy in all games; unset: training.device")
    precision: Precision | None = Field(
        None, description="precision of the policy in all games; unset: training.precision"
    )

    @model_validator(mode="after")
    def _check_opponents(self) -> Self:
        if not self.opponents or min(self.opponents.values()) < 0 or sum(self.opponents.values()) <= 0:
            raise ValueError("opponents are shares of the games: none below 0, and some above it")
        return self


class CloningSettings(FrozenModel):
    """Behavioural cloning before the first iteration."""

    teacher: str = Field(
        "heuristic", description="a bot of the game; it plays all seats, after openings of collection.opening_plies"
    )
    experience: str = Field("", description="file of decisions to learn from, instead of the teacher's games")
    rounds: int = Field(1, ge=1, description="rounds of playing games and learning from them")
    games_per_round: int = Field(4096, ge=1, description="games of the teacher in each round")
    epochs: int = Field(1, ge=1, description="passes over each round's rows")
    batch_size: int = Field(256, ge=8, description="decisions in a step of the optimiser")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="learning rate of Adam")
    value_coef: float = Field(0.5, ge=0, description="weight of the critic's loss")
    max_grad_norm: float = Field(0.5, gt=0, description="maximum norm of a gradient; longer ones are scaled down")


class TrunkSettings(FrozenModel):
    """The network.

    An mlp has the layers in ``hidden``. Without ``hidden`` it has two layers: ``hidden_dim`` units, and half as many.
    """

    kind: NetworkKind = MLP

    obs_dim: int | None = Field(None, ge=1, description="checked against the game's")
    action_dim: int | None = Field(None, ge=1, description="checked against the game's")
    hidden_dim: int = Field(256, ge=2, description="units of the first layer; the second has half of them")
    hidden: tuple[Width, ...] | None = Field(
        None, min_length=1, description="units of each layer, for instance [512, 256], instead of hidden_dim"
    )
    residual: Residual = 0
    filters: Filters = 64
    blocks: Blocks = 4
    channels: Channels = 32
    squeeze_excite: SqueezeExcite = False
    policy_head: PolicyHead = "dense"
    options: NetworkOptions = Field({})

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        try:
            _ = self.network
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error
        return self

    @property
    def network(self) -> NetworkSettings:
        """The network's settings, as in a configuration."""
        shared = {name: getattr(self, name) for name in NetworkSettings.model_fields if name != "hidden"}
        return NetworkSettings(hidden=self.hidden or (self.hidden_dim, self.hidden_dim // 2), **shared)


FirstRate = Annotated[float, Field(gt=0, le=1, description="learning rate of the first iteration")]
LastRate = Annotated[float | None, Field(gt=0, le=1, description="learning rate of the last iteration")]
Course = Annotated[Literal["linear", "cosine"], Field(description="interpolation from the first to the last values")]


class PipelinePpoSettings(PpoSettings):
    """PPO, with schedules over the iterations."""

    learning_rate: FirstRate = 3e-4
    learning_rate_end: LastRate = None
    gamma: Gamma = 0.99
    gae_lambda: GaeLambda = 0.95
    entropy_coef: float = Field(0.01, ge=0, description="weight of the entropy in the first iteration")
    entropy_coef_end: float | None = Field(None, ge=0, description="weight of the entropy in the last iteration")
    schedule: Course = "linear"
    epochs: int = Field(4, ge=1, description="passes over the rows; also called ppo_epochs")
    normalize_advantages: bool = Field(True, description="to mean 0 and standard deviation 1 in each batch")
    target_kl: float = Field(0.05, gt=0, description="KL divergence above which an epoch is the last")


class PipelineSearchSettings(SearchSettings):
    """Search, and learning from it, with a schedule over the iterations."""

    learning_rate: FirstRate = 1e-3
    learning_rate_end: LastRate = None
    schedule: Course = "linear"
    epochs: int = Field(3, ge=1, description="samples for each fresh row")
    replay_rows: int = Field(REPLAY_ROWS, ge=0, description="rows of earlier iterations that are learned from, too")


class TrainingSettings(FrozenModel):
    """Length, evaluations, checkpoints and device of a training."""

    max_episodes: int | None = Field(None, ge=1, description="games after which no iteration starts")
    early_stopping: bool = Field(False, description="end the run once the outcome no longer rises: see patience")
    patience: int = Field(20, ge=3, description="latest evaluations that early stopping considers")
    least_rise: float = Field(
        0.02, description="early stopping ends a run whose outcome certainly rises less over them"
    )
    checkpoint_frequency: int = Field(
        5, ge=1, description="iterations between checkpoints; a resumed run repeats fewer"
    )
    eval_frequency: int = Field(1, ge=1, description="iterations between evaluations")
    eval_games: int = Field(100, ge=1, description="rounded up to whole rotations of the seats")
    eval_opponent: str = Field("random", description="a bot, in all other seats")
    eval_temperature: float = Field(
        EvaluationSettings().temperature, ge=0, le=10, description="of the policy's sampling; 0 is greedy"
    )
    final_games: int = Field(1000, ge=0, description="games of the best policy against each bot, on fresh deals")
    max_recoveries: int = Field(5, ge=0, description="diverged updates before the run fails")
    threads: int = Field(
        1, ge=1, description="threads of the arithmetic; their number changes the last bits of results"
    )
    device: Device = "cpu"
    precision: Precision = "auto"
    processes: ProcessesPerTraining = 1


class LoggingSettings(FrozenModel):
    """Outputs other than checkpoints."""

    tensorboard: bool = Field(True, description="write TensorBoard curves to the output folder")
    csv_log: str = Field("training_log.csv", description="CSV file in the output folder; '' for none")
    wandb: WandbMode = Field("off", description="Weights & Biases: pip install 'flyball[wandb]'")
    log_level: LogLevel = Field("INFO", description="WARNING and ERROR hide the progress")
    print_frequency: int = Field(1, ge=1, description="iterations between lines of progress")


class PipelineSettings(FrozenModel):
    """A training run."""

    backend: TrainedBackend = Field(
        "policy_gradient", description="policy_gradient learns by PPO, search from what its own tree searches find"
    )
    env: EnvSettings = EnvSettings()
    collection: CollectionSettings = CollectionSettings()
    cloning: CloningSettings = CloningSettings()
    network: TrunkSettings = TrunkSettings()
    ppo: PipelinePpoSettings = PipelinePpoSettings()
    search: PipelineSearchSettings = PipelineSearchSettings()
    training: TrainingSettings = TrainingSettings()
    logging: LoggingSettings = LoggingSettings()

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, values: Any) -> Any:
        """Drop the settings in ``REMOVED``, which runs of earlier versions recorded."""
        if not isinstance(values, Mapping):
            return values
        tables = dict(values)
        for removed in REMOVED:
            table, _, name = removed.partition(".")
            if isinstance(tables.get(table), Mapping):
                tables[table] = {key: value for key, value in tables[table].items() if key != name}
        return tables

    @property
    def updates(self) -> Compute:
        """Device, precision and processes of updates."""
        training = self.training
        return Compute(device=training.device, precision=training.precision, processes=training.processes)

    @property
    def games(self) -> Compute:
        """Device and precision of the policy in collected games and evaluations."""
        games, updates = self.collection, self.updates
        return Compute(device=games.device or updates.device, precision=games.precision or updates.precision)


_CLONE = {"initial_policy": "behavioral_clone"}
_TUNED_PPO: dict[ConfigKey, dict[str, Any]] = {
    ConfigKey("connect_four_2p"): {
        "collection": {"games_per_iteration": 512, "num_iterations": 2600, "opponents": {SELF: 0.75, HEURISTIC: 0.25}},
        "ppo": {"learning_rate": 2.5e-3, "learning_rate_end": 2.5e-4, "epochs": 2, "batch_size": 512}
        | {"entropy_coef": 0.15, "entropy_coef_end": 0.04},
        "training": {"eval_games": 1000, "eval_frequency": 65, "checkpoint_frequency": 65},
    },
    ConfigKey("hearts_4p"): {
        "env": {"reward_mode": "per_trick"},
        "collection": {"opponents": {HEURISTIC: 1.0}, "games_per_iteration": 4096, "num_iterations": 500} | _CLONE,
        "cloning": {"rounds": 16, "games_per_round": 2048, "batch_size": 512},
        "ppo": {"learning_rate": 1e-3, "learning_rate_end": 1e-4, "gamma": 1.0, "gae_lambda": 0.8}
        | {"epochs": 2, "batch_size": 2048, "entropy_coef": 0.002, "entropy_coef_end": 0.0005},
        # with half as many games, luck too often decides which model is best
        "training": {"eval_games": 12_000, "eval_frequency": 10, "checkpoint_frequency": 10},
    },
    ConfigKey("tic_tac_toe_2p"): {"collection": {"num_iterations": 400}},  # half a minute; the policy then seldom loses
    # Half of all games of random players reach the move limit. Those of the bot that sees mates are decided, and short.
    ConfigKey("shogi_2p"): {
        "collection": _CLONE,
        "cloning": {"teacher": "mate", "rounds": 4, "games_per_round": 128, "batch_size": 32, "learning_rate": 2e-3},
        "ppo": {"learning_rate": 5e-4},
        "training": {"eval_games": 100, "final_games": 100},
    },
    ConfigKey("minishogi_2p"): {
        "collection": {"num_iterations": 400},  # a quarter of an hour
        "ppo": {"learning_rate_end": 1e-4},
        "training": {"eval_frequency": 20, "checkpoint_frequency": 20},
    },
    # Random players never finish this race, so there is nothing to learn from a random start.
    ConfigKey("chinese_checkers_3p"): {"collection": _CLONE, "cloning": {"rounds": 8, "games_per_round": 128}},
}
"""Settings of PPO found by experiments (ADR-029). Other games whose configuration learns by PPO have the settings of
the daemons."""


def _searched(iterations: int, games: int) -> dict[str, Any]:
    return {
        "collection": {"games_per_iteration": games, "num_iterations": iterations},
        "search": {"learning_rate": 2e-3, "learning_rate_end": 2e-4},
        "training": {"eval_frequency": 10, "checkpoint_frequency": 10},
    }


_TUNED: dict[str, dict[ConfigKey, dict[str, Any]]] = {
    DEFAULT_BACKEND: _TUNED_PPO,
    SEARCH_BACKEND: {
        ConfigKey("connect_four_2p"): _searched(iterations=210, games=1024),
        ConfigKey("breakthrough6_2p"): _searched(iterations=120, games=512),
        ConfigKey("hex7_2p"): _searched(iterations=120, games=512),
        ConfigKey("go7_2p"): _searched(iterations=120, games=512),
        ConfigKey("othello_2p"): _searched(iterations=80, games=512),
        ConfigKey("ultimate_tic_tac_toe_2p"): _searched(iterations=80, games=512),
        ConfigKey("clobber_2p"): _searched(iterations=120, games=512),
    },
}
"""Settings by backend; ``tests/benchmarks/results/search.md`` has what search learns with these."""


def suited(config: GameConfig, backend: str) -> dict[str, Any]:
    """Return the settings that suit a game and a backend, by dotted key, instead of the defaults."""
    knobs = {"learning_rate": config.learning_rate, "epochs": config.epochs}
    replayed = {} if config.replay_rows is None else {"replay_rows": config.replay_rows}
    network = config.network.model_dump(exclude=config.network.left_out) if config.network.kind != MLP else {}
    play, evaluation = config.selfplay, config.evaluation
    from_config = {
        "backend": backend,
        "collection": {"games_per_iteration": play.games_per_request, "opening_plies": play.opening_plies},
        "network": network,
        "ppo": config.ppo.model_dump() | knobs,
        "search": config.search.model_dump() | knobs | replayed,
        "training": {
            "eval_opponent": HEURISTIC if HEURISTIC in config.builtins else RANDOM,
            "eval_temperature": evaluation.temperature,
            "eval_games": 400,
            "eval_frequency": 5,
        },
    }
    return flatten(from_config) | flatten(_TUNED[backend].get(config.key, {}))
