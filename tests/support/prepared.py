"""A process whose imports are done; others are forked from it."""

import multiprocessing

PREPARED = multiprocessing.get_context("forkserver")
MODULES = ["flyball.app.cli.daemon", "flyball.app.league", "flyball.app.store", "flyball.daemons.broker"]
PREPARED.set_forkserver_preload(MODULES)
