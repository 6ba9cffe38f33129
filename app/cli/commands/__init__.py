"""One module for each command; nothing is imported here, so that each loads what it needs and no more."""

__all__: list[str] = []
