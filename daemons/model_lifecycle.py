"""The model lifecycle: promotes and rolls back models, and keeps the league."""

from flyball.app.controllers import ModelLifecycleCoordinator
from flyball.app.controllers.league_keeper import LeagueKeeper
from flyball.daemons.spec import DaemonSpec

DAEMON = DaemonSpec(
    "model_lifecycle",
    "decides which model is current, and who is in the league",
    (ModelLifecycleCoordinator, LeagueKeeper),
)
