"""Files: written whole, rows of ours, rows of a user, and samples as other tools write them."""
