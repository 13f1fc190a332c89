"""Sizes of models that are made in milliseconds."""

SIZES = {
    "vocab_size": 80,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
