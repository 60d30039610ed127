"""Run directories: files, locks, checkpoints and trackers."""
