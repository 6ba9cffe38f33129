"""Diagnosis of a run: facts gathered in one place, and a small pure check for each kind of trouble."""
