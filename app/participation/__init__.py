"""Jobs that participants do: programs of the user's own, beside a run (ADR-038)."""
