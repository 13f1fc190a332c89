"""Computer algebra behind the outcome keys: from an answer's text to its canonical form."""
