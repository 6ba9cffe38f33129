"""The child process of ``LocalEngine``: ``python -m app.engine NICE``."""

from app.engine.worker import main

main()
