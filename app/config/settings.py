"""Settings of one game configuration."""

import re
from math import ceil
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, JsonValue, field_validator, model_validator

from flyball.app.config.base import FrozenModel, ManifestPart
from flyball.app.core import ANCHOR, HEURISTIC, MCTS, RANDOM, SOLVER, BotName, ConfigKey, is_judge

Parameter = Literal["learning_rate", "epochs", "games_per_iteration", "quality_threshold", "base_temperature"]
"""A parameter of training or self-play that the feedback may change."""

PARAMETERS: tuple[Parameter, ...] = get_args(Parameter)
"""All parameters; each is also a field of FeedbackState."""

DEFAULT_BACKEND, SEARCH_BACKEND, LANGUAGE_BACKEND = "policy_gradient", "search", "language"

EXTERNAL_BACKEND = "external"
"""The backend without jobs: participants play, train and evaluate (ADR-038)."""

REPLAY_ROWS = 1_000_000
"""Default number of rows of earlier trainings that backend ``search`` learns from."""

FEWEST_SIMULATIONS, MOST_SIMULATIONS = 2, 4096
"""Bounds of the number of positions that a search looks at for a move."""

CONFIG_KEY = re.compile(r"^[a-z][a-z0-9_]*_[2-7]p$")
"""Keys of configurations: they end with the number of players. No game string looks like one."""


MLP, WINDOWS, TOWER = "mlp", "windows", "tower"
Width = Annotated[int, Field(ge=1)]
NetworkKind = Annotated[
    str,
    Field(
        min_length=1,
        description="mlp, windows, tower, or one's own: package.module:factory, or the name of an entry point",
    ),
]
Filters = Annotated[int, Field(ge=1, description="of windows: numbers that each 4 x 4 window of the board becomes")]
Residual = Annotated[
    int, Field(ge=0, description="of an mlp or windows: residual blocks of two layers each, above the other layers")
]
Blocks = Annotated[int, Field(ge=1, description="of a tower: residual blocks, of two convolutions each")]
Channels = Annotated[int, Field(ge=1, description="of a tower: channels of each convolution")]
SqueezeExcite = Annotated[bool, Field(description="of a tower: blocks weight their channels by the whole board")]
PLANES = "planes"
PolicyHead = Annotated[
    Literal["dense", "planes"],
    Field(description="of a tower: dense, or 1 x 1 convolutions to planes of actions, where a game has such planes"),
]
NetworkOptions = Annotated[
    dict[str, JsonValue], Field(description="of one's own network: passed to its factory unchanged")
]


NETWORK_FIELDS = {
    MLP: {"hidden", "residual"},
    WINDOWS: {"kind", "filters", "hidden", "residual"},
    TOWER: {"kind", "blocks", "channels", "squeeze_excite", "policy_head"},
}
"""Fields of our kinds of networks that manifests hold."""
_LATER_FIELDS = {"residual", "policy_head"}


class NetworkSettings(ManifestPart):
    """An actor-critic network of ours, by kind, or one of the user's.

    Fields of another kind than ``kind`` have to keep their defaults, and are left out of manifests.
    """

    kind: NetworkKind = MLP
    hidden: tuple[Width, ...] = Field((256, 128), min_length=1, description="of an mlp or windows: units of each layer")
    residual: Residual = 0
    filters: Filters = 64
    blocks: Blocks = 4
    channels: Channels = 32
    squeeze_excite: SqueezeExcite = False
    policy_head: PolicyHead = "dense"
    options: NetworkOptions = Field({})

    def __str__(self) -> str:
        used = self.model_dump(exclude=self.left_out | {"kind": True})
        return f"{self.kind} ({', '.join(f'{name} = {value}' for name, value in used.items())})"

    @property
    def left_out(self) -> dict[str, Any]:
        """Fields that a manifest leaves out: those of other kinds, an mlp's ``kind``, and unused later ones."""
        fields = type(self).model_fields
        unused = {name for name in _LATER_FIELDS if getattr(self, name) == fields[name].default}
        return dict.fromkeys(fields.keys() - NETWORK_FIELDS.get(self.kind, {"kind", "options"}) | unused, True)

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        unused = sorted(self.left_out.keys() - {"kind"})
        for name in unused:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(f"a network of kind {self.kind!r} has no {name}: leave it out, it is {value!r}")
        return self


Gamma = Annotated[float, Field(gt=0, le=1, description="discount factor from one decision of a seat to its next")]
GaeLambda = Annotated[
    float,
    Field(ge=0, le=1, description="lambda of GAE; 1: advantages from the outcome; 0: from the critic's next value"),
]


class PpoCoefficients(FrozenModel):
    """Coefficients of proximal policy optimisation (Schulman et al. 2017).

    No controller changes them. Of several settings, the defaults gave the strongest players of the two-player games
    after 20 seconds. Rewards come at the end of games of any length, so nothing is discounted. Later moves are
    exploratory and often bad, so the critic judges a move soon after it (lambda 0.75 rather than 0.95).
    """

    gamma: Gamma = 1.0
    gae_lambda: GaeLambda = 0.75
    clip_epsilon: float = Field(0.2, gt=0, lt=1, description="probability ratios are clipped to 1 ± this")
    value_coef: float = Field(0.5, ge=0, description="weight of the critic's loss")
    entropy_coef: float = Field(0.03, ge=0, description="weight of the entropy in the first training")
    entropy_coef_end: float | None = Field(
        None, ge=0, description="weight of the entropy after entropy_trainings; unset: constant"
    )
    entropy_trainings: int = Field(100, ge=1, description="trainings until entropy_coef_end is reached")
    max_grad_norm: float = Field(0.5, gt=0, description="maximum norm of a gradient; longer ones are scaled down")
    batch_size: int = Field(256, ge=8, description="rows in a step of the optimiser")
    target_kl: float = Field(0.1, gt=0, description="KL divergence above which an epoch is the last")
    max_kl: float = Field(1.0, gt=0, description="KL divergence above which an update is discarded as diverged")
    min_entropy: float = Field(1e-3, ge=0, description="entropy in nats below which a policy has collapsed")
    symmetries: bool = Field(True, description="also learn from symmetric images of the positions")


class PpoSettings(PpoCoefficients):
    """All settings of an update: coefficients, learning rate and epochs."""

    learning_rate: float = Field(1e-3, ge=1e-12, le=1, description="learning rate of Adam")
    epochs: int = Field(3, ge=1, description="passes over the rows")


class SearchSettings(FrozenModel):
    """Search and learning of backend ``search``: Gumbel AlphaZero (Danihelka et al. 2022)."""

    simulations: int = Field(
        32, ge=FEWEST_SIMULATIONS, le=MOST_SIMULATIONS, description="positions looked at for a move of self-play"
    )
    considered: int = Field(16, ge=2, le=1024, description="most moves of the root that are tried")
    visit_offset: float = Field(50.0, ge=0, description="weight of values: as if the best move had so many more visits")
    value_scale: float = Field(1.0, gt=0, description="weight of values beside the network's logits in self-play")
    playing_value_scale: float = Field(0.5, gt=0, description="the same in evaluations and games against people")
    root_value_share: float = Field(
        0.25, ge=0, le=1, description="share of the search's value in the critic's targets; the outcome has the rest"
    )
    value_lambda: float = Field(
        1.0,
        ge=0,
        le=1,
        description="weight of what follows the next move in the rest: 1 is the game's outcome alone; with less, the "
        "searches at later moves count, the next one most",
    )
    batch_size: int = Field(1024, ge=8, description="rows in a step of the optimiser")
    value_coef: float = Field(1.0, ge=0, description="weight of the critic's loss")
    max_grad_norm: float = Field(1.0, gt=0, description="maximum norm of a gradient; longer ones are scaled down")
    symmetries: bool = Field(True, description="also learn from symmetric images of the positions")


class LanguageSettings(FrozenModel):
    """Settings of backend ``language``: a base model and its adapters.

    The adapters learn by GRPO (Shao et al. 2024).
    """

    base: str | None = Field(
        None, min_length=1, description="your base model: a folder, or its name on the hub; unset: a small one is made"
    )
    base_layers: int = Field(4, ge=1, le=64, description="of the small base model")
    base_width: int = Field(128, ge=16, le=4096, description="of the small base model: numbers that stand for a token")
    base_heads: int = Field(4, ge=1, le=64, description="of the small base model: attention heads of a layer")
    teacher: BotName = Field(HEURISTIC, description="bot whose moves the small base model learns before anything else")
    lessons: int = Field(80_000, ge=0, description="moves of the teacher that the small base model learns from")
    lesson_rate: float = Field(2e-3, gt=0, le=1, description="highest learning rate of the small base model")
    rank: int = Field(8, ge=1, le=256, description="of an adapter's matrices")
    alpha: int = Field(16, ge=1, description="an adapter's product is scaled by alpha / rank")
    targets: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        description="names of the modules that are adapted",
    )
    constrained: bool = Field(True, description="answers are drawn among the legal ones; false: freely")
    most_tokens: int = Field(64, ge=1, le=8192, description="of an answer drawn freely; a longer one is cut off")
    illegal_cost: float = Field(
        1.0, ge=0, description="taken from a seat's reward, times the share of its answers that were not legal"
    )
    group_games: int = Field(8, ge=2, le=1024, description="games of a group, from the same start and in the same seat")
    truncated: Literal["scored", "left_out"] = Field(
        "scored", description="truncated games: rewarded by their scores, or not learned from"
    )
    advantage: Literal["standardised", "centred"] = Field(
        "standardised", description="a group's rewards less their mean, and perhaps divided by their deviation"
    )
    ratio: Literal["token", "sequence"] = Field(
        "token", description="probability ratios are clipped token by token, or those of whole answers (GSPO)"
    )
    clip_epsilon: float = Field(0.2, gt=0, lt=1, description="probability ratios are clipped to 1 ± this")
    kl_coef: float = Field(0.02, ge=0, description="weight of the divergence from the base model")
    legality_coef: float = Field(
        0.0, ge=0, description="weight of minus the log-probability that a token drawn freely is a legal one"
    )
    max_kl: float = Field(1.0, gt=0, description="divergence from the policy that played, above which an update ends")
    batch_rows: int = Field(
        512, ge=1, description="most answers in a step of the optimiser; all steps are of equal size"
    )
    batch_tokens: int = Field(
        16_384, ge=64, description="tokens, prompts included, that pass through the model at once"
    )
    gradient_checkpointing: bool = Field(
        False, description="training keeps less in memory, and computes each layer twice"
    )
    max_grad_norm: float = Field(1.0, gt=0, description="maximum norm of a gradient; longer ones are scaled down")
    weight_decay: float = Field(0.0, ge=0, description="of AdamW")

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.base_width % (2 * self.base_heads):  # positions rotate pairs of a head's numbers
            raise ValueError(
                f"base_width {self.base_width} must be a multiple of 2 * base_heads, {2 * self.base_heads}"
            )
        return self


Rewards = Annotated[
    Literal["terminal", "per_trick", "shaped"],
    Field(description="distribution of rewards over a game; except in Hearts only terminal"),
]
Divisor = Annotated[float, Field(gt=0)]
Scale = Divisor | tuple[Divisor, ...]
Openings = Annotated[int, Field(ge=0, description="a game begins with 0 to this many random decisions")]
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 10.0


class SelfplaySettings(FrozenModel):
    """Self-play of a configuration."""

    games_per_request: int = Field(
        256,
        ge=1,
        le=1_000_000,
        description="games of a request; a search is asked for more, up to 1,024, if a job slot's share of a training "
        "takes more",
    )
    temperature: float = Field(
        1.0, ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE, description="divides the logits before sampling"
    )
    rewards: Rewards = "terminal"
    opening_plies: Openings = 0
    most_lineups: int = Field(
        8, ge=1, description="most lineups of a request: more vary the opponents more, fewer have more games each"
    )
    most_opponents: int | None = Field(
        None, ge=1, description="most different opponents of a request, where memory for models is short; unset: any"
    )


OPENING_PLIES = 4
"""Random decisions that begin a game of an evaluation, where otherwise games would repeat."""


class EvaluationSettings(FrozenModel):
    """Gauntlets, which rate models, and rounds of gates."""

    random_games: int = Field(200, ge=1, description="games against the random bot")
    model_games: int = Field(
        100, ge=1, description="games against the newest lasting anchor, and of each round against the champion"
    )
    anchors: int = Field(2, ge=0, description="newest lasting anchors to play")
    members: int = Field(2, ge=0, description="other league members to play, drawn among those near in strength")
    anchor_games: int = Field(50, ge=1, description="games against each other opponent")
    saturated_games: int = Field(
        20, ge=1, description="games against opponents with a one-sided score against the champion (over 90%)"
    )
    temperature: float = Field(
        0.3,
        ge=0,
        le=10,
        description="of both sides; 0 is greedy: then only chance and openings vary the games. Ratings at different "
        "temperatures are not comparable, so a change within a run leads to rollbacks",
    )
    batch_games: int = Field(256, ge=1, description="games that one process plays at once")
    batch_seconds: float = Field(600.0, gt=0, description="time after which a batch counts as hanging")
    opening_plies: int | None = Field(
        None,
        ge=0,
        description="random decisions that begin a game, equal for all seatings, fewer where the players would have "
        "none; unset: 4, or 0 where cards, dice or hidden moves make games differ",
    )

    def openings(self, *, dealt: bool) -> int:
        """Return the random decisions that begin a game; ``dealt``: cards, dice or hidden moves vary games."""
        if self.opening_plies is not None:
            return self.opening_plies
        return 0 if dealt else OPENING_PLIES


TAKEN_NAMES = frozenset(
    {
        *(RANDOM, HEURISTIC, SOLVER, MCTS, "self", "model", "current", "champion", "recent"),
        *("top_k", "pfsp", "round_robin"),  # strategies of flyball eval
    }
)
TAKEN_PREFIXES = (ANCHOR, "member_")
"""Beginnings of models' roles in a gauntlet. No bot of the user's own has such a name, or one of ``TAKEN_NAMES``."""


def is_taken(name: str) -> bool:
    """Return whether a bot's name means something else."""
    return name in TAKEN_NAMES or name.startswith(TAKEN_PREFIXES)


EngineProtocol = Literal["gtp", "uci", "usi"]
"""Protocol of an engine: Go Text Protocol, Universal Chess Interface, Universal Shogi Interface."""


class BotSettings(FrozenModel):
    """A player of the user's own.

    The player is a Python object, or a process that speaks an engine's protocol.
    """

    player: str | None = Field(
        None, min_length=1, description="a Python player: package.module:factory, or the name of an entry point"
    )
    command: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        None, min_length=1, description="an engine: a program and its arguments, run in the folder of flyball.toml"
    )
    protocol: EngineProtocol | None = Field(None, description="that the command speaks")
    options: dict[str, JsonValue] = Field(
        {}, description="passed to the factory unchanged; of an engine: its options, for gtp commands sent at its start"
    )
    seconds: float | None = Field(None, gt=0, le=3600, description="of an engine: time for a move; gtp rounds it up")
    nodes: int | None = Field(None, ge=1, description="of an engine that speaks uci or usi: nodes to search for a move")
    answer_seconds: float = Field(
        60.0, gt=0, description="of an engine: longest wait for an answer, also at its start; then it is restarted"
    )

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.player is None) == (self.command is None):
            raise ValueError("a bot has either a player or a command: name one of them")
        if self.player is not None and (self.protocol, self.seconds, self.nodes) != (None, None, None):
            raise ValueError("protocol, seconds and nodes are for a command, and this bot has a player")
        if self.command is not None and self.protocol is None:
            raise ValueError("a bot with a command needs its protocol: gtp, uci or usi")
        if self.protocol == "gtp" and self.nodes is not None:
            raise ValueError("gtp knows no nodes: set seconds, or a level by the command or the options")
        if self.protocol in ("uci", "usi") and self.seconds is None and self.nodes is None:
            raise ValueError(f"an engine that speaks {self.protocol} needs a limit: set nodes or seconds")
        if self.command is not None and any(isinstance(value, dict | list) for value in self.options.values()):
            raise ValueError("options of an engine are texts, numbers or booleans: it is sent one value for each")
        seconds = self.seconds or 0
        if (ceil(seconds) if self.protocol == "gtp" else seconds) >= self.answer_seconds:
            raise ValueError("answer_seconds has to be more than seconds: otherwise each move counts as a failure")
        return self


Modules = tuple[Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")], ...]
"""Names of modules, for instance ``my_games`` or ``package.games``."""


class GameConfig(FrozenModel):
    """One game configuration: game, number of players, network and settings."""

    key: ConfigKey = Field(pattern=CONFIG_KEY.pattern)
    game: str = Field(
        min_length=1,
        description="an OpenSpiel game string, for instance 'hex(board_size=7)'; 'package.module:name' or an entry "
        "point for a game of your own; or 'pettingzoo:connect_four_v3'; of backend external, any label of the game and "
        "the version of its rules",
    )
    imports: Modules = Field((), description="modules imported before its game is loaded: the run's setting `import`")
    players: int = Field(ge=2, le=7, description="number of seats; the key ends with it")
    engine: Literal["openspiel", "flyball"] = Field(
        "openspiel", description="implementation of the rules; flyball has those of Hearts and of most board games"
    )
    max_moves: int | None = Field(None, ge=1, description="a longer game is truncated, not drawn")
    observation: Literal["observation", "information_state"] | None = Field(
        None,
        description="which of OpenSpiel's tensors to learn from; unset: the information state, which forgets nothing, "
        "where something is hidden, and otherwise the observation",
    )
    outcome_scale: Divisor | None = Field(
        None,
        description="largest possible outcome of a seat in the game's own units, such as chips: it counts as 1 in "
        "training; unset: as the game says, 1 for PettingZoo's",
    )
    scale: Scale | None = Field(
        None, description="divisor of observations in first networks, or a list with one a feature; unset: the game's"
    )
    rows_per_training: int = Field(
        8192, ge=1, le=10**9, description="fresh rows that start a training at normal intensity"
    )
    replay_rows: int | None = Field(
        None, ge=0, description="rows of earlier trainings that each training also learns from, where the backend can"
    )
    backend: str = Field(
        DEFAULT_BACKEND, description="how its models are made and played: a name, or 'package.module:NAME' of your own"
    )
    options: dict[str, JsonValue] = Field({}, description="for a backend or trainer of your own; passed on unchanged")
    importance: float = Field(
        1.0, gt=0, le=100, description="worth of an Elo of this game beside the other games': it gets more worker time"
    )
    knobs: tuple[Parameter, ...] = Field(
        PARAMETERS, description="parameters that the feedback may change, as far as the backend understands them"
    )
    learning_rate: float = Field(
        1e-3, ge=1e-12, le=1, description="learning rate of the first trainings; the feedback changes it"
    )
    epochs: int = Field(3, ge=1, description="passes over the rows in the first trainings; the feedback changes it")
    builtins: tuple[BotName, ...] = Field(
        (RANDOM,),
        description="bots of its league: random, heuristic where the game has one, and names in bots; of backend "
        "external, the fixed players that participants know, where random is the one whose rating is 0",
    )
    bots: dict[BotName, BotSettings] = Field({}, description="players of one's own, by the names to use for them")
    trainer: str | None = Field(
        None, min_length=1, description="trains instead of the backend: package.module:function, or an entry point"
    )
    train_command: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        None, min_length=1, description="trains instead of the backend: a program and its arguments"
    )
    network: NetworkSettings = NetworkSettings()
    ppo: PpoCoefficients = PpoCoefficients()
    search: SearchSettings = SearchSettings()
    language: LanguageSettings = LanguageSettings()
    selfplay: SelfplaySettings = SelfplaySettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def replays(self) -> bool:
        """True if trainings also learn from rows of earlier models; valid once the backend has been asked."""
        return bool(self.replay_rows)

    @property
    def is_external(self) -> bool:
        """True if participants play, train and evaluate."""
        return self.backend == EXTERNAL_BACKEND

    @model_validator(mode="after")
    def _check_random_bot(self) -> Self:
        if RANDOM not in self.builtins:
            raise ValueError(f"builtins of {self.key} lack 'random', on which all ratings are anchored: add it")
        return self

    @field_validator("builtins", mode="before")
    @classmethod
    def _refuse_judges(cls, value: Any) -> Any:
        for name in value if isinstance(value, list | tuple) else ():
            if isinstance(name, str) and is_judge(name):
                raise ValueError(
                    f"{name} is a judge, and judges are not trained against: name it in flyball eval alone"
                )
        return value

    @model_validator(mode="after")
    def _check_bot_names(self) -> Self:
        for name in self.bots:
            if is_taken(name):
                raise ValueError(f"bots of {self.key} cannot be called {name!r}, which means something else: rename it")
        return self

    @model_validator(mode="after")
    def _check_trainer(self) -> Self:
        if self.trainer is not None and self.train_command is not None:
            raise ValueError(f"{self.key} has a trainer and a train_command: leave one of them out")
        if self.is_external and (self.trainer or self.train_command or self.bots):
            raise ValueError(
                f"participants train and play {self.key}, whose backend is external: leave out trainer, train_command "
                "and bots, and name the fixed players that participants know in builtins"
            )
        return self
