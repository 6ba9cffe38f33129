"""Opponents are drawn with the probabilities that matchmaking decided.

A chi-squared test shows it for a simulated run with the real controllers.
"""

from functools import cache

import pytest
from sampled_opponents import CRITICAL, compared, draws_of
from simulated_settings import simulated_settings

from flyball.app.config import GAMES, AdmissionSettings, LeagueSettings
from flyball.app.core import ConfigKey
from flyball.app.events import Event, Payload, SelfplayComplete, SelfplayRequested
from flyball.app.simulation import ALL, ARMS, Simulation, load_plant

KEYS = ("tic_tac_toe_2p", "connect_four_2p", "oh_hell_3p")
OFTEN = AdmissionSettings(recent_every=2, recent_for=20, anchor_every=10)


@cache
def events() -> list[Event[Payload]]:
    """Return three simulated days."""
    settings = simulated_settings(6, [GAMES[ConfigKey(key)] for key in KEYS])
    league = LeagueSettings(admission=OFTEN)
    simulation = Simulation(settings.replace(league=league), load_plant(), ARMS[ALL], seed=1, seconds=72 * 3600.0)
    found = list[Event[Payload]]()
    simulation.listeners.append(found.append)
    simulation.run()
    return found


@pytest.mark.parametrize("what", ["categories", "picks"])
def test_the_sampled_distribution_is_the_decided_one(what):
    statistic, freedom = compared(events())[what]
    assert statistic < CRITICAL[freedom]


def test_a_league_of_many_was_met():
    draws = draws_of(events())
    assert len(draws) > 1500
    assert len({agent for _, (_, agent) in draws}) > 20
    assert {category for _, (category, _) in draws} >= {"mirror", "peers", "baselines"}


def test_games_against_others_give_rows_of_hero_seats_only():
    requests = {event.id: event.data for event in events() if isinstance(event.data, SelfplayRequested)}
    played = [e.data for e in events() if isinstance(e.data, SelfplayComplete) and e.subject == "connect_four_2p"]
    alone, mixed = [], []
    for one in played:
        request = requests[one.request_id]
        others = sum(lineup.games for lineup in request.lineups if lineup.opponents != (request.model,))
        share = 1 - others / request.games / 2
        assert one.shard.rows == pytest.approx(one.mean_length * one.shard.games * share, abs=1)
        (mixed if others else alone).append(share)
    assert mixed
    assert max(mixed) < 1
