"""Test suites of other libraries, run with our classes in place of theirs."""
