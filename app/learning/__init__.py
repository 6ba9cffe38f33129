"""Networks, samples and proximal policy optimisation; jobs that make models."""
