"""Flyball: self-play reinforcement learning that runs itself. ADR-003 explains the layers."""

if __name__ != "flyball.app":
    raise ImportError("This folder of a checkout of Flyball is the package flyball.app; import that name.")
