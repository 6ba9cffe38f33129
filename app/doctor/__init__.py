"""Diagnosis of a run. Facts are gathered in one place; a small pure check finds each kind of trouble."""
