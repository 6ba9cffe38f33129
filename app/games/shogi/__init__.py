"""Shogi and minishogi by our own compiled rules."""
