"""Tic-tac-toe by AlphaZero of OpenSpiel's Python library, governed by Flyball.

Of its packages ``chex flax jax optax orbax-checkpoint`` are no dependencies of open_spiel.
"""

import io
import sys
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from shutil import make_archive, unpack_archive
from tempfile import TemporaryDirectory

import numpy as np
import pyspiel
from open_spiel.python.algorithms import mcts
from open_spiel.python.algorithms.alpha_zero import alpha_zero, evaluator, model_nnx, replay_buffer, utils

import flyball

FILES = Path("alpha_zero_files")
GAME = pyspiel.load_game("tic_tac_toe")
SIMULATIONS, UCT_C, NOISE, BATCH = 6, 1.5, (0.25, 1.0), 64


class Quiet:
    """OpenSpiel's logger, silent."""

    print = opt_print = staticmethod(lambda *_: None)


class RandomBot(mcts.MCTSBot):
    """A search that has looked at one move, drawn at random."""

    def mcts_search(self, state):
        root = mcts.SearchNode(None, state.current_player(), 1)
        root.explore_count, chosen = 1, self._random_state.choice(state.legal_actions())
        root.children = [mcts.SearchNode(chosen, state.current_player(), 1)]
        root.children[0].explore_count = 1
        return root


def stored(content, suffix):
    FILES.mkdir(exist_ok=True)
    name = sha256(content).hexdigest()
    (part := FILES / f"{name}.part").write_bytes(content)
    part.rename(FILES / f"{name}.{suffix}")
    return name


def built(learning_rate=0.0, name=None, folder=None):
    """Build OpenSpiel's model; load a stored one's checkpoint."""
    with TemporaryDirectory() as unpacked:
        if name:
            unpack_archive(FILES / f"{name}.zip", unpacked)
        shape, actions = GAME.observation_tensor_shape(), GAME.num_distinct_actions()
        model = model_nnx.Model.build_model("mlp", shape, actions, 64, 1, 1e-4, learning_rate, unpacked)
        if name:
            model.load_checkpoint(0)
    return model


@lru_cache(maxsize=8)
def judge(name):
    """Return OpenSpiel's evaluator of positions by a model, which keeps those that it has seen."""
    return evaluator.AlphaZeroEvaluator(GAME, built(name=name))


def bot(name, noise):
    judged, puct = None if name == "random" else judge(name), mcts.SearchNode.puct_value
    kind = mcts.MCTSBot if judged else RandomBot
    return kind(GAME, UCT_C, SIMULATIONS, judged, solve=False, dirichlet_noise=noise, child_selection_fn=puct)


def game(number, names, noise=None, temperature=1.0, drop=0):
    """Play OpenSpiel's game of self-play. In game n the first of ``names`` has seat n modulo 2."""
    bots = [bot(name, noise) for name in names]
    return alpha_zero._play_game(Quiet, number, GAME, bots[:: 1 - 2 * (number % 2)], temperature, drop)


def selfplay(request):
    np.random.seed(request["seed"] % 2**32)  # noqa: NPY002, TID251 - OpenSpiel draws from it
    others = [lineup["opponents"][0] for lineup in request["lineups"] for _ in range(lineup["games"])]
    columns = []
    for number in range(request["games"]):
        name, is_shared = request["model"], number >= len(others)
        pair = (name, name if is_shared else others[number])
        played = game(number, pair, NOISE, request["temperature"], drop=4)
        columns += [
            (state.observation, state.legals_mask, state.policy, played.returns[0])
            for state in played.states
            if is_shared or state.current_player == number % 2  # only the model's own moves
        ]
    np.savez(content := io.BytesIO(), *map(np.array, zip(*columns, strict=True)))
    return {"shard": stored(content.getvalue(), "npz"), "rows": len(columns)}


def train(request):
    model, buffer, metrics = built(request["learning_rate"], request["base_model"]), replay_buffer.Buffer(4096), {}
    for shard in (*request["replayed"], *request["shards"]):
        with np.load(FILES / f"{shard}.npz") as columns:
            for obs, mask, policy, value in zip(*columns.values(), strict=True):
                row = (obs.astype("f4"), mask.astype(bool), policy.astype("f4"), np.float32(value))
                buffer.append(utils.TrainInput(**dict(zip(utils.TrainInput.__annotations__, row, strict=True))))
    for epoch in range(request["epochs"] if buffer else 0):
        losses = [model.update(buffer.sample(BATCH)) for _ in range(max(1, len(buffer) // BATCH))]
        mean = sum(losses, utils.Losses(policy=0, value=0, l2=0)) / len(losses)
        metrics = {"policy_loss": float(mean.policy), "value_loss": float(mean.value)}
        request.progress(epoch + 1, request["epochs"], **metrics)
    with TemporaryDirectory() as folder, TemporaryDirectory() as archived:
        model._path = folder
        model.save_checkpoint(0)
        content = Path(make_archive(f"{archived}/model", "zip", folder)).read_bytes()
    return {"model": stored(content, "zip"), "metrics": metrics}


def evaluate(request):
    np.random.seed((request["seed"] + request["first"]) % 2**32)  # noqa: NPY002, TID251 - OpenSpiel draws from it
    numbers = range(request["first"], request["first"] + request["games"])
    pair = request["model"], request["opponent"]
    return {"scores": [(1 + game(n, pair, drop=2).returns[n % 2]) / 2 for n in numbers]}


if __name__ == "__main__":
    work = {"selfplay": selfplay, "training": train, "evaluation": evaluate}
    for request in flyball.participate(sys.argv[1], *(sys.argv[2:] or work)):
        with request:  # an exception in the block is the request's failure
            request.succeed(**work[request.kind](request))
