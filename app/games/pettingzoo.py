"""Environments of PettingZoo as games: agents are seats, ``action_mask`` is the mask.

A game string is ``pettingzoo:go_v5``, or ``pettingzoo:go_v5(board_size=9)`` with the environment's arguments. A
user-defined one is ``pettingzoo:package.module:function``, whose function takes the arguments and returns it.

An environment has PettingZoo's AEC interface (https://pettingzoo.farama.org/api/aec). Its agents observe a dictionary
of ``observation`` and ``action_mask``, and choose among numbered actions.

**Outcomes** are the sums of the agents' rewards, less their mean, so that they sum to 0. They are divided by the
configuration's ``outcome_scale``, 1 by default, because an environment does not say how large its rewards can be. So
wins of +1 and losses of -1 stay as they are, and an outcome beyond the scale is an error.
"""

import warnings
from ast import Call, literal_eval, parse
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import load_plugin
from flyball.app.games.game import BrokenGame, Game, GameTable
from flyball.app.games.scale import implied_scale
from flyball.app.games.spec_check import spec_faults
from flyball.app.games.table import TableSpec, UnknownGame

PREFIX = "pettingzoo:"
"""Beginning of the game strings of environments."""

ENVIRONMENTS = "flyball.games"
"""Group of the entry points of users' environments, as of their games."""

FAMILIES = ("classic", "butterfly", "atari", "sisl")
SAMPLED_MOVES = 100  # at random, to see whether an environment is cooperative
SEED_BITS = 31  # NumPy's older generators, which some environments use, take seeds of at most 32 bits


def pettingzoo_table(game: str, slots: int, scale: float = 1.0, max_moves: int | None = None) -> GameTable:
    """Return a table of ``pettingzoo:…``; ``scale`` is the largest possible outcome. Raises ``UnknownGame``."""
    make, spec = _environment(game)
    spec = replace(spec, outcome_scale=scale)
    return GameTable(partial(EnvironmentGame, make), spec, game, slots, max_moves=max_moves)


@cache
def _environment(game: str) -> tuple[Callable[[], Any], TableSpec]:
    """Return the maker of a game's environments, and their description, taken from one of them."""
    name = game.removeprefix(PREFIX)
    make = _maker(game, name)
    try:
        env = make()
    except Exception as error:  # an environment may raise anything
        raise UnknownGame(
            f"{game!r} cannot be made: {type(error).__name__}: {error}.", hint="Its manual says what it needs."
        ) from error
    spec = _spec(env, game, f"pettingzoo-{version('pettingzoo')}:{name}")
    if _is_cooperative(env):
        raise UnknownGame(
            f"{game!r} is cooperative: all agents get the same, and agents learn here to get more than the others.",
            hint="Choose an environment that one agent can win.",
        )
    return make, replace(spec, scale=implied_scale(partial(EnvironmentGame, make), spec, game))


def _is_cooperative(env: Any) -> bool:
    """Return whether random moves are rewarded, and all agents always alike."""
    rng, rewarded = Random(0), False
    env.reset(seed=0)
    for _ in range(SAMPLED_MOVES):
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        if not env.agents:
            env.reset(seed=rng.getrandbits(SEED_BITS))
        env.step(rng.choice(np.flatnonzero(env.observe(env.agent_selection)["action_mask"]).tolist()))
        rewards = {float(reward) for reward in env.rewards.values()}
        if len(rewards) > 1:
            return False
        rewarded |= rewards != {0.0}
    return rewarded


def _maker(game: str, text: str) -> Callable[[], Any]:
    """Return the maker of environments by a game string without prefix. Raises ``UnknownGame`` or ``UnknownPlugin``."""
    name, bracket, arguments = text.partition("(")
    make = load_plugin(ENVIRONMENTS, name) if ":" in name else _shipped_maker(game, name)
    if not callable(make):
        raise BrokenGame(
            f"{name} is a {type(make).__name__}.", hint="Name a function that returns an AEC environment, or its class."
        )
    return partial(make, **_arguments(game, arguments)) if bracket else make


def _arguments(game: str, text: str) -> dict[str, Any]:
    """Return the values of ``board_size=9, komi=7.5)``."""
    try:
        call = parse(f"env({text}", mode="eval").body
        if isinstance(call, Call) and not call.args and all(keyword.arg for keyword in call.keywords):
            return {str(keyword.arg): literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        pass
    raise UnknownGame(
        f"{game!r} has arguments that cannot be read.",
        hint="Write names and plain values of Python: pettingzoo:go_v5(board_size=9, komi=7.5), text in quotes.",
    )


def _shipped_maker(game: str, name: str) -> Callable[[], Any]:
    if find_spec("pettingzoo") is None:
        raise UnknownGame(
            f"{game!r} needs PettingZoo, which is not installed.", hint="pip install 'flyball[pettingzoo]'"
        )
    modules = [f"pettingzoo.{family}.{name}" for family in FAMILIES]
    candidates = [module for module in modules if name.isidentifier() and find_spec(module) is not None]
    if not candidates:
        raise UnknownGame(
            f"PettingZoo has no {name!r} in {', '.join(FAMILIES)}.",
            hint="Write the module's name with its version, for instance pettingzoo:connect_four_v3. One of your own "
            "is written pettingzoo:package.module:function.",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo 1.27 prefers its registry
            make: Callable[[], Any] = import_module(candidates[0]).env
            return make
    except ImportError as error:
        raise UnknownGame(
            f"{game!r} needs {error.name}, which is not installed.",
            hint="Install it, or what all classic games need: pip install 'pettingzoo[classic]'",
        ) from error


def _spec(env: Any, game: str, rules_version: str) -> TableSpec:
    """Return an environment's description. Raises ``UnknownGame`` for an environment that cannot be played here."""
    agents = env.possible_agents
    spaces = [(env.observation_space(agent), env.action_space(agent)) for agent in agents]
    observations, actions = spaces[0]
    parts = getattr(observations, "spaces", {})
    masked = "action_mask" in parts and hasattr(parts.get("observation"), "low")
    if any(pair != spaces[0] for pair in spaces) or not masked or not hasattr(actions, "n"):
        raise UnknownGame(
            f"{game!r} cannot be played here: its agents' spaces differ, or lack a box of observations, an action_mask "
            "or numbered actions.",
            hint="Choose one of PettingZoo's classic board or card games, or wrap the environment in a flyball.Game.",
        )
    box = parts["observation"]
    is_integer = box.dtype == np.bool_ or np.issubdtype(box.dtype, np.integer)
    small = is_integer and (box.dtype == np.bool_ or (box.low.min() >= 0 and box.high.max() <= 255))
    shape = _channels_first(np.empty(box.shape)).shape
    spec = TableSpec(
        players=len(agents),
        actions=int(actions.n),
        observation_size=int(np.prod(shape)),
        observation_type=np.uint8 if small else np.float32,
        rules_version=rules_version,
        symmetries=(),
        levels={},
        planes=(shape[0], shape[1], shape[2]) if len(shape) == 3 else None,
        dealt=True,  # an environment does not say so, and a random opening might decide its game
    )
    for fault in spec_faults(spec):
        raise BrokenGame(f"{game}: {fault.what}", hint=fault.hint)
    return spec


def _channels_first(observation: NDArray[Any]) -> NDArray[Any]:
    """Return an image [H, W, C] as planes [C, H, W]. Other shapes are returned unchanged."""
    return observation.transpose(2, 0, 1) if observation.ndim == 3 else observation


class EnvironmentGame(Game):
    """One game of an AEC environment."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._env = make()
        self._agents: list[str] = list(self._env.possible_agents)

    def reset(self, rng: Random) -> None:
        """See ``Game.reset``."""
        self._env.reset(seed=rng.getrandbits(SEED_BITS))
        self._rewards = dict.fromkeys(self._agents, 0.0)
        self._last: dict[str, Any] = {}  # what each agent sees at the end
        self._cut = False
        self._advance()

    def seat(self) -> int | None:
        """See ``Game.seat``."""
        return None if self._last else self._agents.index(self._env.agent_selection)

    def legal(self) -> list[int]:
        """See ``Game.legal``."""
        mask = self._env.observe(self._env.agent_selection)["action_mask"]
        legal: list[int] = np.flatnonzero(mask).tolist()
        return legal

    def play(self, action: int) -> None:
        """See ``Game.play``."""
        self._env.step(action)
        self._advance()

    def observe(self, seat: int) -> NDArray[Any]:
        """See ``Game.observe``."""
        agent = self._agents[seat]
        observation = self._last[agent] if self._last else self._env.observe(agent)
        return _channels_first(observation["observation"])

    def returns(self) -> list[float]:
        """See ``Game.returns``; the mean of the rewards is subtracted."""
        rewards = np.array([self._rewards[agent] for agent in self._agents])
        outcome: list[float] = (rewards - rewards.mean()).tolist()
        return outcome

    def cut_off(self) -> bool:
        """See ``Game.cut_off``."""
        return self._cut

    def _advance(self) -> None:
        """Add up rewards until an agent is to move; agents that are out are removed by a step with None."""
        env = self._env
        while True:
            agent = env.agent_selection
            _, reward, terminated, truncated, _ = env.last(observe=False)
            self._rewards[agent] += float(reward)
            if not (terminated or truncated):
                return
            self._cut |= bool(truncated)
            if all(env.terminations[other] or env.truncations[other] for other in env.agents) and not self._last:
                self._last = {other: env.observe(other) for other in self._agents}
            env.step(None)
            if not env.agents:
                return
