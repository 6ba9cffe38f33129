"""A person's games on the dashboard, by HTTP, and all games that a person can play."""

import re
import time
from html import unescape
from pathlib import Path
from typing import Any

from dashboards import TOKEN
from starlette.testclient import TestClient

BEARER = {"authorization": f"Bearer {TOKEN}"}
PLAYED = (
    "tic_tac_toe_2p",
    "connect_four_2p",
    "breakthrough6_2p",
    "hex7_2p",
    "go7_2p",
    "othello_2p",
    "ultimate_tic_tac_toe_2p",
    "clobber_2p",
    "shogi_2p",
    "minishogi_2p",
    "hearts_4p",
)
"""Configurations that a person can play."""


def begun(client: TestClient, config: str, against: str = "random", **fields: str) -> str:
    """Begin a game, wait until the person is to move or the game is over, and return its address."""
    form = {"config": config, "against": against, "seat": "0", "seed": "4", **fields}
    response = client.post("/games/play", data=form, headers=BEARER, follow_redirects=False)
    assert response.status_code == 303, unescape(response.text)
    address = response.headers["location"]
    settled(client, address)
    return address


def settled(client: TestClient, address: str) -> str:
    """Return a game's page once nothing is computed for it."""
    while "delay:500ms" in (text := client.get(address, headers=BEARER).text):
        time.sleep(0.1)
    return unescape(text)


def moves_on(text: str) -> list[int]:
    """Return the actions that a page offers."""
    return [int(action) for action in re.findall(r'name="action" value="(\d+)"', text)]


def after_on(text: str) -> str:
    """Return how many actions a page has seen."""
    found = re.search(r'name="after" value="(\d+)"', text)
    assert found is not None, text
    return found[1]


def move(client: TestClient, address: str, action: Any, after: Any) -> Any:
    form = {"action": str(action), "after": str(after)}
    return client.post(f"{address}/move", data=form, headers=BEARER)


def play_on(client: TestClient, address: str, choose: Any = min) -> str:
    """Play a game by the actions that its pages offer, and return its last page."""
    while actions := moves_on(text := settled(client, address)):
        assert move(client, address, choose(actions), after_on(text)).status_code == 200
    return text


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
