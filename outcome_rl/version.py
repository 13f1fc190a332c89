"""Version of the package, in its own file so that the build reads it without importing torch."""

__version__ = "0.3.0.dev0"
