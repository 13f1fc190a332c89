"""Tools that read the files of runs: reports, comparisons, hard sets. The trainer does not know them."""
