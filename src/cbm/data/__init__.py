"""Logged transitions: what the variables are, the rows, their checks, and the files they come from."""
