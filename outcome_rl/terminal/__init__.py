"""The terminal: commands and their arguments, text and errors, tables, and progress."""
