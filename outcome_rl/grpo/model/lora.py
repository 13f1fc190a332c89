"""LoRA adapters through peft (Hu et al. 2021, arXiv:2106.09685): small trainable matrices on top of frozen weights.

With the adapters disabled the model is the initial one, so the reference of the KL term needs no second copy. In
a checkpoint's `model/`, and in vLLM where they are float32, weights have the adapters merged and the names of the
original model.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.fsdp import full_state, shard_like
from outcome_rl.grpo.model.weight_layout import check_layout, layout_of, read_layout

ADAPTER = "default"  # peft's name of the first adapter


def add_adapters(model: Any, config: ModelConfig) -> Any:
    """Insert adapters into a model in place, and freeze its own weights.

    Returns:
        peft's wrapper, which disables and saves the adapters.

    Raises:
        ValueError: an adapter is on the lm_head, which the loss would ignore, or on an embedding that is tied to it.
    """
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    targets = config.target_modules
    settings = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        target_modules=targets[0] if targets == ["all-linear"] else targets,
    )
    with torch.random.fork_rng():  # all runs start with the same adapters
        torch.manual_seed(0)
        adapters = get_peft_model(model, settings)
    if isinstance(model.get_output_embeddings(), BaseTunerLayer):
        raise ValueError(
            f"model.target_modules={targets} puts an adapter on the lm_head, which the loss would not see; leave it out"
        )
    # As files, sets would have another order in each process.
    chosen = adapters.peft_config[ADAPTER]
    for name in ("target_modules", "target_parameters"):
        if isinstance(getattr(chosen, name, None), set):
            setattr(chosen, name, sorted(getattr(chosen, name)))
    is_tied = getattr(model.config.get_text_config(), "tie_word_embeddings", False)
    if is_tied and isinstance(model.get_input_embeddings(), BaseTunerLayer):
        raise ValueError(
            f"model.target_modules={targets} puts an adapter on the embedding, whose weight is the lm_head's, where "
            "neither the loss nor a merged model would have it; leave it out"
        )
    return adapters


def adapts_parameters(model: nn.Module) -> bool:
    """Return whether adapters are on parameters that are no weights of layers, such as experts'."""
    from peft.tuners.lora import LoraLayer

    return any(isinstance(module, LoraLayer) and hasattr(module, "parameter_name") for module in model.modules())


def save_adapters(adapters: Any, folder: Path) -> None:
    """Write adapters as peft does; if they are sharded, all processes must call it, each with its own folder.

    Raises:
        ValueError: the file does not hold the adapters.
    """
    from peft import get_peft_model_state_dict

    state = {name: tensor for name, tensor in adapters.state_dict().items() if ".lora_" in name}
    adapters.save_pretrained(folder, state_dict=full_state(state, everywhere=True), save_embedding_layers=False)
    own = layout_of(get_peft_model_state_dict(adapters, save_embedding_layers=False))
    check_layout(read_layout(folder), own, f"the adapters in {folder}")


def load_adapters(adapters: Any, folder: Path) -> None:
    """Load adapters in place, full or sharded, from a folder that `save_adapters` wrote."""
    from peft import get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict

    saved, own = load_peft_weights(str(folder), device="cpu"), get_peft_model_state_dict(adapters)
    set_peft_model_state_dict(adapters, {name: shard_like(tensor, own[name]) for name, tensor in saved.items()})


@torch.no_grad()
def merged_state_dict(model: Any) -> dict[str, Tensor]:
    """Return the state of a model with its adapters merged, under the names that it has without them."""
    from peft.tuners.lora import LoraLayer

    # An adapter is on the weight of a layer, or on a parameter of another name, such as an expert's.
    changes = {
        _without_adapters(f"{name}.{getattr(module, 'parameter_name', 'weight')}"): module.get_delta_weight(ADAPTER)
        for name, module in model.named_modules()
        if isinstance(module, LoraLayer)
    }
    merged = {}
    for name, tensor in model.state_dict().items():
        if ".lora_" in name:
            continue
        change = changes.pop(published := _without_adapters(name), None)
        merged[published] = tensor if change is None else (tensor.to(change.dtype) + change).to(tensor.dtype)
    if changes:
        raise ValueError(f"no tensor of the model takes the adapters on {', '.join(changes)}")
    return merged


def _without_adapters(name: str) -> str:
    """Return the name that a tensor has in the model without adapters, of which a layer may have several."""
    return name.replace(".base_layer", "")
