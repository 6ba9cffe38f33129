"""The pages, in the order of the navigation."""

from app.dashboard.layout import Page
from app.dashboard.pages import games, overview

PAGES: tuple[Page, ...] = (overview.PAGE, games.PAGE)
