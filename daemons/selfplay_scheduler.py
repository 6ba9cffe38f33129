"""The self-play scheduler: decides which configuration plays next, and on which worker."""

from flyball.app.controllers import SelfplayScheduler
from flyball.daemons.spec import DaemonSpec

DAEMON = DaemonSpec("selfplay_scheduler", "decides which configuration plays next", (SelfplayScheduler,))
