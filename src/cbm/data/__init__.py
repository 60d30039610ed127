"""Logged transitions: their variables, rows and checks, and the files they come from."""
