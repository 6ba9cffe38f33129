"""Language models that play: text games, generators of text, adapters, and GRPO."""
