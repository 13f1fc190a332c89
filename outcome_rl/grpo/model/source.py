"""The folder of a model before its weights are loaded: path, shape and tokenizer, and whether its files are whole."""

from pathlib import Path
from typing import Any

import torch

from outcome_rl.files.atomic import lack_of_model
from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.lora import add_adapters, merged_state_dict
from outcome_rl.grpo.model.weight_layout import check_layout, layout_of
from outcome_rl.toy import policy_dir


def load_tokenizer(config: ModelConfig) -> Any:
    """Load the tokenizer of a model; without a padding token it pads with its end token.

    Raises:
        ValueError: there is none, or it has no end token.
    """
    from transformers import AutoTokenizer

    path = model_path(config)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=config.trust_remote_code)
    except Exception as error:  # each library that a config.json may ask for raises its own
        raise ValueError(f"model.path={config.path!r} cannot be loaded: {error}") from error
    if tokenizer.eos_token_id is None:
        raise ValueError(f"model.path={config.path!r}: the tokenizer has no eos token, so responses would never end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_shape(config: ModelConfig) -> Any:
    """Load the configuration of a model, after building it without weights, with its adapters.

    Raises:
        ValueError: it cannot be built, or files of local weights are missing or cut off.
    """
    from transformers import AutoModelForCausalLM

    try:
        shape = read_shape(config)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(shape, trust_remote_code=config.trust_remote_code)
            if config.lora_rank:
                source = layout_of(model.state_dict())
                add_adapters(model, config)
                check_layout(layout_of(merged_state_dict(model)), source, "with model.lora_rank, its checkpoints")
    except ModuleNotFoundError:  # the command says what to install
        raise
    except Exception as error:  # each library that a config.json may ask for raises its own
        reason = str(error).partition("Model type should be one of")[0]  # a list of 200 names follows
        raise ValueError(f"model.path={config.path!r} cannot be trained: {reason}") from error
    return shape


def read_shape(config: ModelConfig) -> Any:
    """Read the configuration of a model, and check that its folder holds weights for all of its layers.

    Raises:
        OSError, ValueError: it does not, or a file is cut off.
    """
    from safetensors import SafetensorError, safe_open
    from transformers import AutoConfig

    shape = AutoConfig.from_pretrained(model_path(config), trust_remote_code=config.trust_remote_code)
    folder, layers = Path(model_path(config)), getattr(shape.get_text_config(), "num_hidden_layers", 0)
    if not folder.is_dir():
        return shape
    if not [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]:
        raise FileNotFoundError(f"{folder} holds no weights, no *.safetensors")
    tensors = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="pt") as file:  # reads the header, and compares it with the size
                tensors += len(file.keys())
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged: {error}") from error
    if 0 < tensors < layers:  # building them would take for ever
        raise ValueError(f"its config.json has {layers} layers, and its files hold {tensors} tensors")
    return shape


def check_context(shape: Any, longest_prompt: int, max_response_length: int) -> None:
    """Check that prompts and responses fit a model with this configuration.

    Raises:
        ValueError: they have more tokens than the model has positions, or than those at which a token's position
            embedding does not depend on the batch.
    """
    shape = shape.get_text_config()
    limit = getattr(shape, "max_position_embeddings", None)
    if not isinstance(limit, int):
        return
    rope, reason = getattr(shape, "rope_parameters", None) or {}, ""
    original = rope.get("original_max_position_embeddings", limit)
    if rope.get("rope_type") in ("longrope", "dynamic"):
        limit = original
        reason = f", beyond which {rope['rope_type']} makes a token depend on the longest sequence in its batch"
    elif rope.get("factor"):  # for llama3 and yarn it applies to the original length
        limit = max(limit, int(rope["factor"] * original))
    if longest_prompt + max_response_length > limit:
        raise ValueError(
            f"data.max_response_length={max_response_length} and the longest prompt, {longest_prompt} tokens, must fit "
            f"the {limit} positions of the model{reason}. Lower data.max_response_length or data.max_prompt_length"
        )


def model_path(config: ModelConfig) -> str:
    """Resolve `model.path` to a folder or a hub name.

    Raises:
        ValueError: it is empty, or names a local folder that does not exist or holds no model.
    """
    if config.path == "toy":
        return str(policy_dir())
    if why := lack_of_model(config.path):
        raise ValueError(f"model.path={config.path!r} cannot be loaded: {why}; give a folder, a hub name, or toy")
    return config.path


def load_whole(model_class: Any, path: str, **options: Any) -> tuple[Any, list[str]]:
    """Load a model, all of whose tensors must be in its safetensors files; transformers would invent the others.

    Returns:
        The model, and the names of tensors in the files that it does not have.

    Raises:
        OSError, ValueError: there is no such model, a file is damaged, or a tensor is missing or has another shape.
    """
    from safetensors import SafetensorError

    try:
        model, found = model_class.from_pretrained(path, output_loading_info=True, **options)
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"its weights are damaged, or belong to another configuration: {error}") from error
    if found["missing_keys"]:
        raise ValueError(f"its files lack the tensors {', '.join(sorted(found['missing_keys']))}")
    return model, sorted(found["unexpected_keys"])


def make_savable(model: Any, path: str) -> None:
    """Repair published generation settings that `save_pretrained` refuses, such as a temperature with do_sample=false.

    Otherwise the first checkpoint would fail.
    """
    settings = model.generation_config
    try:
        settings.validate(strict=True)
    except ValueError:
        settings.do_sample = True
        try:
            settings.validate(strict=True)
        except ValueError as error:
            raise ValueError(
                f"model.path={path!r}: correct or remove its generation_config.json, with which no checkpoint could be "
                f"saved: {error}"
            ) from error
