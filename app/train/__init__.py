"""Training runs in one command: collect, update, evaluate, checkpoint."""
