"""Hearts by our own rules, in compiled batches, and its bots."""
