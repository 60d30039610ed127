"""Measurements, not tests: speed, accuracy against alternatives, cost of prediction. `cbm bench NAME`."""
