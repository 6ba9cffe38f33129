"""Comparisons of arms on real games: the real loop in one process, in virtual time (ADR-036)."""
