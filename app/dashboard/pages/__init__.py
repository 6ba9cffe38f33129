"""The pages, in the order of the navigation."""

from app.dashboard.layout import Page
from app.dashboard.pages import configuration, events, games, league, logs, overview, training, what_if

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    configuration.PAGE,
    events.PAGE,
    league.PAGE,
    training.PAGE,
    games.PAGE,
    what_if.PAGE,
    logs.PAGE,
)
