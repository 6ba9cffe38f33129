"""Tabular tic-tac-toe by self-play in NumPy: a loop of its own, whose last lines take part in a run of Flyball."""

import io
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np

import flyball

FILES = Path("own_loop_files")
LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
DIGITS = 3 ** np.arange(9)


def save(array):
    np.save(content := io.BytesIO(), array)
    name = sha256(content.getvalue()).hexdigest()
    FILES.mkdir(exist_ok=True)
    (FILES / f"{name}.npy").write_bytes(content.getvalue())
    return name


def load(name):
    """Return a table of values of positions, or a shard: positions of games, with their results."""
    return np.zeros(3**9) if name in (None, "random") else np.load(FILES / f"{name}.npy")


def play(tables, temperature, rng):
    """Play a game; return the code of each position after a move, and the first player's result: 1, 0 or -1."""
    board, codes, result = np.zeros(9, dtype=int), [], 0
    for side, table in zip((1, -1) * 5, (*tables,) * 5, strict=True):
        moves = np.flatnonzero(board == 0)
        if result or not len(moves):
            break
        after = np.tile(board * side, (len(moves), 1))  # as the player sees it: own marks are 1, the other's -1
        after[np.arange(len(moves)), moves] = 1
        odds = np.exp(4 * table[after % 3 @ DIGITS] / temperature)
        board = after[rng.choice(len(moves), p=odds / odds.sum())] * side
        codes.append(board * side % 3 @ DIGITS)
        result = side if ((board * side)[LINES].sum(axis=1) == 3).any() else 0
    return np.array(codes), result


def selfplay(request):
    rng, table, rows = np.random.default_rng(request["seed"]), load(request["model"]), []
    others = [load(lineup["opponents"][0]) for lineup in request["lineups"] for _ in range(lineup["games"])]
    for number in range(request["games"]):
        pair = [table, others[number] if number < len(others) else table]
        codes, result = play(pair[:: 1 - 2 * (number % 2)], request["temperature"], rng)
        sides = np.resize([1, -1], len(codes))
        learned = (sides == 1 - 2 * (number % 2)) | (number >= len(others))  # only the model's own moves
        rows.append(np.stack([codes, sides * result], axis=1)[learned])
    return {"shard": save(np.concatenate(rows)), "rows": sum(map(len, rows))}


def train(request):
    table, metrics = load(request["base_model"]), {}
    for epoch in range(request["epochs"] if request["shards"] else 0):  # the first model has nothing to learn from
        codes, results = np.concatenate([load(shard) for shard in request["shards"]]).T
        errors, counts = results - table[codes], np.bincount(codes, minlength=3**9)
        table += request["learning_rate"] * np.bincount(codes, errors, 3**9) / np.maximum(counts, 1)
        metrics = {"loss": float((errors**2).mean())}
        request.progress(epoch + 1, request["epochs"], **metrics)
    return {"model": save(table), "metrics": metrics}


def evaluate(request):
    rng = np.random.default_rng([request["seed"], request["first"]])
    pair = [load(request["model"]), load(request["opponent"])]
    signs = [1 - 2 * (number % 2) for number in range(request["first"], request["first"] + request["games"])]
    return {"scores": [(1 + sign * play(pair[::sign], request["temperature"], rng)[1]) / 2 for sign in signs]}


if __name__ == "__main__":
    work = {"selfplay": selfplay, "training": train, "evaluation": evaluate}
    for request in flyball.participate(sys.argv[1], *(sys.argv[2:] or work)):
        with request:  # an exception in the block is the request's failure
            request.succeed(**work[request.kind](request))
