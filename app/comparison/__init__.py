"""Comparisons of arms on real games (ADR-036). The real loop runs in one process, in virtual time."""
