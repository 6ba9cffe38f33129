"""A PettingZoo environment in which three agents bet chips.

The agents leave one after the other. Rewards are in chips.
"""

from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import AECEnv
from pettingzoo.utils import AgentSelector

STAKE = 5.0


class Chips(AECEnv):
    """Each agent folds (0) or bets (1).

    An agent that folds is out, and the last one left takes all bets. ``most`` is the number of moves after which all
    agents are truncated.
    """

    metadata: ClassVar = {"name": "chips_v0"}
    kind: ClassVar = np.float32

    def __init__(self, most=9):
        super().__init__()
        self.most = most
        self.possible_agents = ["ann", "bob", "cyn"]

    def observation_space(self, agent):
        seen = Box(low=0, high=200, shape=(4,), dtype=self.kind)
        return Dict({"observation": seen, "action_mask": Box(0, 1, (2,), np.int8)})

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = [*self.possible_agents]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.bets = dict.fromkeys(self.agents, 0.0)
        self.moves, self.luck = 0, int(np.random.default_rng(seed).integers(100))
        self.selector = AgentSelector(self.agents)
        self.agent_selection = self.selector.reset()

    def observe(self, agent):
        place = self.possible_agents.index(agent)
        bets = [self.bets[one] for one in self.possible_agents]
        seen = np.array([*bets[place:], *bets[:place], self.luck], dtype=self.kind)
        return {"observation": seen, "action_mask": np.ones(2, np.int8)}

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.moves += 1
        if action:
            self.bets[agent] += STAKE
            self.rewards[agent] = -STAKE
        else:
            self.terminations[agent] = True
        staying = [one for one in self.agents if not self.terminations[one]]
        if len(staying) == 1:
            self.rewards[staying[0]] += sum(self.bets.values())
            self.terminations[staying[0]] = True
        elif self.moves == self.most:
            self.truncations = {one: not self.terminations[one] for one in self.agents}
        order = [*self.agents[self.agents.index(agent) + 1 :], *self.agents[: self.agents.index(agent) + 1]]
        self.agent_selection = next((one for one in order if one in staying), order[0])
        self._accumulate_rewards()
        self._deads_step_first()
