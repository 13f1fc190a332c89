"""A pretrained language model of 135M parameters, trained by reinforcement learning on a CPU."""
