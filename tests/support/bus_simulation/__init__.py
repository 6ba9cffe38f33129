"""Brokers, programs, disks and network in one process, on a virtual clock, from one seed (ADR-041)."""
