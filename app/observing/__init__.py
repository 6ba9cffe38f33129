"""Files of an observed loop, followed as they grow, and the facts in them (ADR-039)."""
