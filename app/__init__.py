"""Flyball: self-play reinforcement learning that runs itself. ADR-003 explains the layers."""
