"""Diplomacy by our own rules."""
