"""Breaks runs and files on purpose: `python -m tests.torture`, not collected by pytest."""
