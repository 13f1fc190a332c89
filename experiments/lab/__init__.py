"""Statistics and searches that the studies share."""
