"""Files of a loop elsewhere, followed as they grow, and the facts in them (ADR-039)."""
