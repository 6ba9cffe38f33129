"""Nim as a table: one array of all games, which is faster.

In flyball.toml: ``game = "nim_table:nim"``.
"""

import numpy as np

from flyball import FINISHED, FlyballError, IllegalAction, Table, TableSpec

HEAPS, MOST = (1, 3, 5, 7), 7
SPEC = TableSpec(
    players=2,
    actions=len(HEAPS) * MOST,  # action a takes a % MOST + 1 pieces from heap a // MOST
    observation_size=len(HEAPS) * MOST,
    observation_type=np.uint8,
    rules_version="nim_table-1:nim",
    symmetries=(),
    levels={},
)


class NimTable(Table):
    spec = SPEC

    def __init__(self, slots):
        self.heaps = np.zeros((slots, len(HEAPS)), dtype=np.int64)
        self.mover = np.full(slots, FINISHED, dtype=np.int8)
        self.outcomes = np.zeros((slots, 2), dtype=np.float32)
        self.moves = [[] for _ in range(slots)]

    def reset(self, slots, seeds):
        if len(seeds) != len(slots):
            raise ValueError(f"{len(slots)} slots need as many seeds, not {len(seeds)}")
        self.heaps[slots], self.mover[slots], self.outcomes[slots] = HEAPS, 0, 0
        for slot in slots:
            self.moves[slot] = []

    def seats(self):
        return self.mover.copy()

    def observe(self, slots):
        obs = self.view(slots, self.mover[slots])
        return obs, obs.astype(bool)  # whoever sees a heap's third piece may take three

    def view(self, slots, seats):
        pieces = np.arange(MOST) < self.heaps[slots][:, :, None]
        return pieces.reshape(len(slots), self.spec.observation_size).astype(np.uint8)

    def step(self, slots, actions):
        legal = self.observe(slots)[1]
        for slot, action, allowed in zip(slots.tolist(), actions.tolist(), legal, strict=True):
            if not allowed[action]:
                raise IllegalAction(action, slot, np.flatnonzero(allowed).tolist())
        while len(slots):  # at first the given moves, then forced ones, where one piece is left
            self.heaps[slots, actions // MOST] -= actions % MOST + 1
            for slot, action in zip(slots.tolist(), actions.tolist(), strict=True):
                self.moves[slot].append(action)
            left, winner = self.heaps[slots].sum(axis=1), self.mover[slots]
            over = slots[left == 0]
            self.outcomes[over, winner[left == 0]] = 1
            self.outcomes[over, 1 - winner[left == 0]] = -1
            self.mover[slots] = np.where(left == 0, FINISHED, 1 - winner)
            slots = slots[left == 1]
            actions = self.observe(slots)[1].argmax(axis=1)

    def returns(self):
        return self.outcomes.copy()

    def truncated(self):
        return np.zeros(len(self.mover), dtype=bool)

    def history(self, slot):
        return self.moves[slot].copy()


def nim(config, slots):
    if config.max_moves is not None:
        raise FlyballError("Nim ends by itself.", hint="Leave max_moves out.")
    return NimTable(slots)
