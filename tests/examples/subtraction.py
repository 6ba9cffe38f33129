"""Subtraction for OpenSpiel: take 1 to 3; the last piece wins.

The import registers the game. In flyball.toml: ``import = ["subtraction"]``, then ``game = "my_subtraction(heap=9)"``.
"""

import numpy as np
import pyspiel

MOST = 3

KIND = pyspiel.GameType(
    short_name="my_subtraction",
    long_name="Subtraction",
    dynamics=pyspiel.GameType.Dynamics.SEQUENTIAL,
    chance_mode=pyspiel.GameType.ChanceMode.DETERMINISTIC,
    information=pyspiel.GameType.Information.PERFECT_INFORMATION,
    utility=pyspiel.GameType.Utility.ZERO_SUM,
    reward_model=pyspiel.GameType.RewardModel.TERMINAL,
    max_num_players=2,
    min_num_players=2,
    provides_information_state_string=False,
    provides_information_state_tensor=False,
    provides_observation_string=True,
    provides_observation_tensor=True,
    parameter_specification={"heap": 12},
)


class Subtraction(pyspiel.Game):
    def __init__(self, params=None):
        self.heap = (params or {}).get("heap", 12)
        info = pyspiel.GameInfo(
            num_distinct_actions=MOST, max_chance_outcomes=0, num_players=2, min_utility=-1.0, max_utility=1.0,
            utility_sum=0.0, max_game_length=self.heap,
        )  # fmt: skip
        super().__init__(KIND, info, params or {})

    def new_initial_state(self):
        return Position(self)

    def make_py_observer(self, iig_obs_type=None, params=None):
        return Observer(self.heap)


class Position(pyspiel.State):
    def __init__(self, game):
        super().__init__(game)
        self.left, self.mover = game.heap, 0

    def current_player(self):
        return self.mover if self.left else pyspiel.PlayerId.TERMINAL

    def _legal_actions(self, player):
        return list(range(min(MOST, self.left)))

    def _apply_action(self, action):
        self.left -= action + 1
        self.mover = 1 - self.mover

    def _action_to_string(self, player, action):
        return f"take {action + 1}"

    def is_terminal(self):
        return self.left == 0

    def returns(self):
        if self.left:
            return [0.0, 0.0]
        return [-1.0, 1.0] if self.mover == 0 else [1.0, -1.0]

    def __str__(self):
        return f"{self.left} left"


class Observer:
    def __init__(self, heap):
        self.tensor = np.zeros(heap + 1, np.float32)
        self.dict = {"left": self.tensor}

    def set_from(self, state, player):
        self.tensor[:] = np.arange(len(self.tensor)) == state.left

    def string_from(self, state, player):
        return str(state)


pyspiel.register_game(KIND, Subtraction)
