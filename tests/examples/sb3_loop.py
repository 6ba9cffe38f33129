"""Tic-tac-toe of PettingZoo by Stable-Baselines3's MaskablePPO in self-play, governed by Flyball."""

import sys
from hashlib import file_digest
from pathlib import Path

import gymnasium as gym
import numpy as np
from pettingzoo.classic import tictactoe_v3
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.save_util import load_from_pkl, save_to_pkl
from stable_baselines3.common.utils import set_random_seed

import flyball

FILES = Path("sb3_files")


class Seat(gym.Env):
    """One seat of PettingZoo's game, which it takes in turn with an opponent for each game."""

    observation_space = gym.spaces.Box(0, 1, (3, 3, 2), np.int8)
    action_space = gym.spaces.Discrete(9)

    def __init__(self, opponents=(None,), first=0):
        self.game, self.opponents, self.number = tictactoe_v3.env(), opponents, first - 1

    def action_masks(self):
        return self.game.observe(self.game.agent_selection)["action_mask"].astype(bool)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.number += 1
        self.game.reset()
        self.agent = self.game.possible_agents[self.number % 2]
        self.opponent = self.opponents[self.number % len(self.opponents)]
        return self.wait(), {}

    def step(self, action):
        self.game.step(int(action))
        seen = self.wait()
        over = any(self.game.terminations.values())
        return seen, self.game.rewards[self.agent] if over else 0, over, False, {}

    def wait(self):
        """Let the opponent move; return what the seat sees."""
        if self.game.agent_selection != self.agent and not any(self.game.terminations.values()):
            self.game.step(act(self.opponent, self))
        return self.game.observe(self.agent)["observation"]


def act(model, seat):
    mask = seat.action_masks()
    if model is None:
        return int(seat.np_random.choice(np.flatnonzero(mask)))
    seen = seat.game.observe(seat.game.agent_selection)["observation"]
    return int(model.predict(seen, action_masks=mask)[0])


# All that Flyball needs follows: files by the hash of their content, and a function for each kind of request.
def stored(write):
    FILES.mkdir(exist_ok=True)
    write(part := FILES / f"{np.random.default_rng().integers(2**63)}.part")
    with part.open("rb") as file:
        name = file_digest(file, "sha256").hexdigest()
    part.rename(FILES / name)
    return name


def loaded(name, env=None, **settings):
    return None if name == "random" else MaskablePPO.load(FILES / name, env, device="cpu", **settings)


def selfplay(request):
    """Collect a rollout, the first half of ``MaskablePPO.learn``."""
    lineups = [name for lineup in request["lineups"] for name in [lineup["opponents"][0]] * lineup["games"]]
    others = {name: loaded(name) for name in {*lineups, request["model"]}}
    names = lineups + [request["model"]] * (request["games"] - len(lineups))
    env = Seat([others[name] for name in names])
    model = loaded(request["model"], env, n_steps=4 * request["games"])
    model.set_random_seed(request["seed"] % 2**32)
    model.learn(0, callback := CallbackList([]))  # resets the environment
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    shard = stored(lambda path: save_to_pkl(path, model.rollout_buffer))
    return {"shard": shard, "rows": model.n_steps, "games": int(model.rollout_buffer.episode_starts.sum())}


def train(request):
    """Learn from rollouts, the second half of ``MaskablePPO.learn``."""
    settings = {"learning_rate": request["learning_rate"], "n_epochs": request["epochs"]}
    if request["base_model"] is None:
        model = MaskablePPO("MlpPolicy", Seat(), batch_size=64, ent_coef=0.01, device="cpu", **settings)
    else:
        model = loaded(request["base_model"], Seat(), **settings)
    model.set_random_seed(request["seed"] % 2**32)
    model.learn(0)  # opens the logger
    for number, shard in enumerate(request["shards"], start=1):
        model.rollout_buffer = load_from_pkl(FILES / shard)
        model.train()
        values = model.logger.name_to_value
        metrics = {name: float(values[f"train/{name}"]) for name in ("value_loss", "entropy_loss", "approx_kl")}
        request.progress(number, len(request["shards"]), **metrics)
    return {"model": stored(model.save), "metrics": metrics if request["shards"] else {}}


def evaluate(request):
    set_random_seed(seed := (request["seed"] + request["first"]) % 2**31)
    seat, model, scores = Seat([loaded(request["opponent"])], request["first"]), loaded(request["model"]), []
    for number in range(request["games"]):
        seat.reset(seed=seed + number)
        while not any(seat.game.terminations.values()):
            reward = seat.step(act(model, seat))[1]
        scores.append((1 + reward) / 2)
    return {"scores": scores}


if __name__ == "__main__":
    work = {"selfplay": selfplay, "training": train, "evaluation": evaluate}
    for request in flyball.participate(sys.argv[1], *(sys.argv[2:] or work)):
        with request:  # an exception in the block is the request's failure
            request.succeed(**work[request.kind](request))
