"""Settings of a run: declaration, presets, loading."""
