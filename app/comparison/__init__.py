"""Comparisons of arms on real games (ADR-021). The real loop runs in one process, in virtual time."""
