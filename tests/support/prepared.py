"""A process whose imports are done; others are forked from it."""

import multiprocessing

PREPARED = multiprocessing.get_context("forkserver")
PREPARED.set_forkserver_preload(["app.cli.daemon", "app.league", "app.store", "daemons.broker"])
