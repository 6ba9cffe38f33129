"""Tabular tic-tac-toe by self-play in NumPy: a loop of its own, which takes part in a run of Flyball.

``python own_loop.py RUN`` plays, trains and evaluates what the run asks for. Tables of values and positions of games are
files that are named by the SHA-256 of their content.
"""

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
    file = io.BytesIO()
    np.save(file, array)
    name = sha256(file.getvalue()).hexdigest()
    FILES.mkdir(exist_ok=True)
    (FILES / f"{name}.npy").write_bytes(file.getvalue())
    return name


def load(name):
    return None if name == "random" else np.load(FILES / f"{name}.npy")


def play(tables, temperature, rng):
    """Play a game; return the code of each position after a move, and the first player's result: 1, 0 or -1."""
    board, codes = np.zeros(9, dtype=int), []
    for ply in range(9):
        side, moves = 1 - 2 * (ply % 2), np.flatnonzero(board == 0)
        after = np.tile(board * side, (len(moves), 1))
        after[np.arange(len(moves)), moves] = 1  # as the player sees it: own marks are 1, the other's -1
        logits = np.zeros(len(moves))
        if (table := tables[ply % 2]) is not None:
            logits = 4 * table[after % 3 @ DIGITS] / temperature
        odds = np.exp(logits - logits.max())
        pick = rng.choice(len(moves), p=odds / odds.sum())
        board = after[pick] * side
        codes.append(after[pick] % 3 @ DIGITS)
        if (after[pick][LINES].sum(axis=1) == 3).any():
            return np.array(codes), side
    return np.array(codes), 0


def selfplay(request):
    rng, table = np.random.default_rng(request["seed"]), load(request["model"])
    others = [load(lineup.opponents[0]) for lineup in request["lineups"] for _ in range(lineup.games)]
    rows = []
    for number in range(request["games"]):
        other, seat = others[number] if number < len(others) else table, number % 2
        codes, result = play((table, other) if seat == 0 else (other, table), request["temperature"], rng)
        signs = np.where(np.arange(len(codes)) % 2 == 0, 1, -1)
        own = np.ones(len(codes), dtype=bool) if other is table else signs == 1 - 2 * seat
        rows.append(np.stack([codes, signs * result], axis=1)[own])
    return {"shard": save(np.concatenate(rows)), "rows": sum(map(len, rows))}


def train(request):
    table = np.zeros(3**9) if request["base_model"] is None else load(request["base_model"])
    if request["base_model"] is None:
        return {"model": save(table)}
    codes, results = np.concatenate([load(shard) for shard in request["shards"]]).T
    for epoch in range(1, request["epochs"] + 1):
        errors = results - table[codes]
        change = np.bincount(codes, errors, 3**9) / np.maximum(1, np.bincount(codes, minlength=3**9))
        table += request["learning_rate"] * change
        request.progress(epoch, request["epochs"], loss=(errors**2).mean())
    return {"model": save(table), "metrics": {"loss": (errors**2).mean()}}


def evaluate(request):
    rng, tables = np.random.default_rng(request["seed"] + request["first"]), [load(request["model"]), None]
    tables[1], scores = load(request["opponent"]), []
    for number in range(request["first"], request["first"] + request["games"]):
        _, result = play(tables if number % 2 == 0 else tables[::-1], request["temperature"], rng)
        scores.append((1 + (result if number % 2 == 0 else -result)) / 2)
    return {"scores": scores}


if __name__ == "__main__":
    work = {"selfplay": selfplay, "training": train, "evaluation": evaluate}
    for request in flyball.participate(sys.argv[1], *work):
        with request:  # an exception is the request's failure
            request.succeed(**work[request.kind](request))
