"""Causal graphs and minimal state abstractions from logged transitions."""
