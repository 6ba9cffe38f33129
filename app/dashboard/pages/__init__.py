"""The pages, in the order of the navigation."""

from app.dashboard.layout import Page
from app.dashboard.pages import games, overview, what_if

PAGES: tuple[Page, ...] = (overview.PAGE, games.PAGE, what_if.PAGE)
