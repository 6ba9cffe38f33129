"""Networks, samples and proximal policy optimisation; the jobs that make models."""
