"""Policy loss and log-probabilities, from hidden states or from logits."""
