"""A tiny random Qwen2-VL, and an image in each prompt; a processor of images would need torchvision."""

from typing import Any

import torch
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

IMAGE, START, END, VOCABULARY = 107, 108, 109, 110
PROMPT = [5, START, *[IMAGE] * 4, END, 6]  # an image of 4 x 4 patches is four tokens


def make_model(kind: type[Qwen2VLForConditionalGeneration] = Qwen2VLForConditionalGeneration) -> Any:
    torch.manual_seed(0)
    text = {
        **{"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "num_key_value_heads": 2, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
    }
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "patch_size": 2}
    config = Qwen2VLConfig(text_config=text, vision_config=vision, image_token_id=IMAGE, vision_start_token_id=START)
    return kind(config)


def images(count: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(count * 16, 3 * 2 * 2 * 2, generator=generator)
    return {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, 4, 4]] * count)}
