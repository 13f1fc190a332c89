"""Version of the package, in its own file so that the build reads it without importing torch."""

__version__ = "0.1.0.dev0"
