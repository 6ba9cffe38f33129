"""Evaluation of Gymnasium environments."""
