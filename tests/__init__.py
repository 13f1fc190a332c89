"""A package, so that processes that tests start import these tests, and no installed package of that name."""
