"""Planning a scenario in a run."""

from flyball.app.api.runs import RunLocation, check_config, open_journal
from flyball.app.config.loading import UnknownConfig
from flyball.app.journal import history
from flyball.app.journal.history import last_settings
from flyball.app.scenarios import READS, SCENARIOS, Plan, choose, views_of
from flyball.app.store import open_store


def plan_scenario(location: RunLocation, name: str, config_key: str | None) -> Plan:
    """Return the plan of a scenario.

    Without ``config_key``, the first configuration that has what the scenario needs is chosen. May put artifacts for
    the scenario into the store. Raises ``UnknownConfig`` or ``NotReady``.
    """
    chosen = SCENARIOS[name]
    with open_journal(location) as reader:
        check_config(reader, config_key)
        settings = last_settings(reader)
        views = views_of(settings, history(reader, types=READS, on_dead=lambda _: None)) if settings else {}
    if config_key is not None and config_key not in views:
        raise UnknownConfig(f"This run does not play {config_key}.", hint=f"It plays {', '.join(views)}.")
    store = open_store(location.store)
    return chosen.plan(choose(chosen, views, config_key, store), store)
