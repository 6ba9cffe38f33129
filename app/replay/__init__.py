"""Replay of a journal: re-decide, reconcile, explain, what-if."""
