"""Outputs of a training run."""
