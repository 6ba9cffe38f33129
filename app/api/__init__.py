"""Functions behind the commands and the public API."""
