import numpy as np

from flyball.app.play.rng import draw_points, number_streams


def test_points_are_those_of_splitmix64_and_even() -> None:
    """The first outputs are those of the reference implementation for the seed 1234567."""
    outputs = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert number_streams(1234567, np.arange(5)).tolist() == outputs
    points = draw_points(number_streams(5, np.arange(1000)).repeat(100), np.tile(np.arange(100), 1000))
    assert 0 <= points.min() < points.max() < 1
    counts = np.histogram(points, bins=100, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 160  # chi-squared with 99 degrees of freedom: 1 in 10,000 above
    grid = points.reshape(1000, 100)
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.02
