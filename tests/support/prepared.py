"""A process whose imports are done; others are forked from it."""

import multiprocessing

PREPARED = multiprocessing.get_context("forkserver")
PREPARED.set_forkserver_preload(
    ["flyball.app.cli.daemon", "flyball.app.league", "flyball.app.store", "flyball.daemons.broker"]
)
