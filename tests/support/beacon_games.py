"""A game of pixels: each seat names its own bright place."""

import numpy as np

from flyball.app.games import Game

PLACES, WIDTH = 4, 16


class Beacon(Game):
    """Pixels from 0 to 255, as in images."""

    version, players, actions, observation_size, observation_type = 1, 2, PLACES, PLACES * WIDTH, np.uint8
    bright = 255

    def reset(self, rng):
        self.places, self.points, self.turn = [rng.randrange(PLACES), rng.randrange(PLACES)], [0, 0], 0

    def seat(self):
        return self.turn if self.turn < 2 else None

    def legal(self):
        return range(PLACES)

    def play(self, action):
        self.points[self.turn] = int(action == self.places[self.turn])
        self.turn += 1

    def observe(self, seat):
        return self.image(self.places[seat])

    def returns(self):
        difference = self.points[0] - self.points[1]
        return (difference, -difference)

    @classmethod
    def image(cls, place):
        """Return what a seat with its bar at ``place`` sees."""
        pixels = np.full((PLACES, WIDTH), cls.bright // 2, dtype=np.uint8)
        pixels[place] = cls.bright
        return pixels.reshape(-1)


class DimBeacon(Beacon):
    """The same in numbers from 0 to 2."""

    bright = 2
