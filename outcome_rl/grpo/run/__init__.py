"""Files and screen of a run: evaluation, checkpoints, logs, trackers."""
