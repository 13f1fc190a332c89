"""Group advantages with outcome-based exploration bonuses."""
