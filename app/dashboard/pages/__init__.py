"""The pages, in the order of the navigation."""

from app.dashboard.layout import Page
from app.dashboard.pages import configuration, events, league, logs, overview, training

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    configuration.PAGE,
    events.PAGE,
    league.PAGE,
    training.PAGE,
    logs.PAGE,
)
