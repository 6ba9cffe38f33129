"""Flyball: self-play reinforcement learning that runs itself. ADR-005 explains the layers."""
