"""From scored responses to an optimizer step."""
