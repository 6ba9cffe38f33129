"""The daemon runtime: host, fold, jobs, registry and wiring. Its modules are imported one by one, lazily."""

__all__: list[str] = []
