"""Typed configuration of a run: one dataclass a section.

Names follow verl where it has one (leaf names; the sections are flatter). The defaults are the paper's hyperparameters;
`configs/toy.yaml` holds those of the toy default. Files and overrides are read by `config_loading.py`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class ModelConfig:
    """The policy; its initial weights are also the reference of the KL term."""

    # Folder or hub name of a causal language model; "toy" is the tiny policy shipped with the package.
    path: str = ""
    # Of weights, arithmetic and the saved model. With bfloat16 the optimizer keeps and steps float32 weights, of which
    # the model's are the rounded ones: a step of 1e-6 would be rounded away.
    dtype: Literal["float32", "bfloat16"] = "float32"
    # "auto" takes a GPU where there is one.
    device: str = "auto"
    # Whether code from the hub may run.
    trust_remote_code: bool = False
    # Train on packed rows without padding. False is for models that cannot, such as those with state-space layers.
    use_remove_padding: bool = True
    # Recompute activations in the backward pass instead of keeping them: less memory, a forward pass more.
    enable_gradient_checkpointing: bool = False
    # Rank of LoRA adapters (arXiv:2106.09685), then all that is trained; needs peft. 0 trains the whole model.
    lora_rank: int = 0
    # LoRA scales its product by lora_alpha / lora_rank.
    lora_alpha: int = 16
    # Names of the layers that get adapters; "all-linear" is every linear layer but the lm_head.
    target_modules: list[str] = field(default_factory=lambda: ["all-linear"])


@dataclass(frozen=True)
class DataConfig:
    """Problems: .jsonl files (a JSON object a line), .parquet files, "toy:train|validation|test", or a Hugging
    Face "name[:config]@split"."""

    # What to train on, as the section's first line says.
    train_files: list[str] = field(default_factory=list)
    # Evaluated every trainer.test_freq steps.
    val_files: list[str] = field(default_factory=list)
    # Evaluated before the first and after the last step, for the table of base against trained.
    test_files: list[str] = field(default_factory=list)
    # Use only the first so many training problems; -1 uses all.
    train_max_samples: int = -1
    # The same for each validation and test source.
    val_max_samples: int = -1
    # Column of the stable id in train_files, where a dot leads into a struct; empty tries id, question_id, unique_id.
    # Validation and test sources that lack a named column are read by the usual names.
    id_key: str = ""
    # Column of the problem, likewise; empty tries problem, question, prompt.
    prompt_key: str = ""
    # Column of the reference answer, likewise; empty tries answer, gold.
    answer_key: str = ""
    # Text around the problem.
    prompt_template: str = "{problem}"
    # Wrap the prompt as a user message; "auto" does so where the tokenizer has a chat template.
    apply_chat_template: Literal["auto", "true", "false"] = "auto"
    # Questions a step.
    train_batch_size: int = 256
    # In tokens.
    max_prompt_length: int = 1024
    # What to do with prompts that are longer: stop, or leave them out and say how many.
    overlong_prompts: Literal["error", "filter"] = "error"
    # In tokens; longer responses are cut off.
    max_response_length: int = 4096
    # Every epoch in its own random order.
    shuffle: bool = True


@dataclass(frozen=True)
class SamplingConfig:
    """How responses are sampled."""

    # Samples a prompt.
    n: int = 8
    # Of sampling; training divides the logits of the loss by that of its rollouts.
    temperature: float = 1.0
    # Nucleus sampling; 1 is off. For evaluation: the loss takes tokens to be sampled from the whole vocabulary.
    top_p: float = 1.0
    # Sampling from so many tokens; -1 is off. For evaluation, as top_p is.
    top_k: int = -1


@dataclass(frozen=True)
class RolloutConfig(SamplingConfig):
    """The rollout engine and the sampling of training responses."""

    # What samples: the trained weights themselves, or a vLLM engine that receives them after every step.
    engine: Literal["transformers", "vllm"] = "transformers"
    # Sequences generated at a time, at most.
    micro_batch_size: int = 512
    # Share of the device's memory that vLLM may fill (of the machine's, in its CPU build), cache and weights.
    gpu_memory_utilization: float = 0.5
    # True spares vLLM's compilation and CUDA graphs: it starts sooner and samples more slowly.
    enforce_eager: bool = False
    # Whether vLLM gives its GPU memory back between rollouts (its sleep mode); without a GPU it keeps what it has.
    free_cache_engine: bool = True
    # With vLLM: weight the policy term of each token by min(p_policy / p_vllm, this), truncated importance sampling;
    # null is off.
    importance_cap: float | None = None
    # Sampling in evaluation.
    val_kwargs: SamplingConfig = field(default_factory=lambda: SamplingConfig(n=32))


@dataclass(frozen=True)
class OptimConfig:
    """AdamW and its schedule."""

    # Peak learning rate.
    lr: float = 1e-6
    # Steps of linear warm-up.
    lr_warmup_steps: int = 0
    # Schedules of transformers.get_scheduler.
    lr_scheduler_type: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    # Decoupled, of AdamW.
    weight_decay: float = 0.01
    # Of AdamW.
    betas: tuple[float, float] = (0.9, 0.999)


@dataclass(frozen=True)
class ActorConfig:
    """The policy update; see `linear_policy_loss`. By default one optimizer step on each batch, as in the paper: the
    ratio is then 1 and clipping idle."""

    # What several processes hold of the policy: all of it each ("ddp"), or a part ("fsdp2") of its weights, gradients
    # and optimizer, and of the reference.
    strategy: Literal["ddp", "fsdp2"] = "ddp"
    # Questions of one optimizer step, with all their samples; null is all of the batch.
    ppo_mini_batch_size: int | None = None
    # Passes over each batch.
    ppo_epochs: int = 1
    # Responses of one forward and backward pass; gradients add up to those of the mini-batch.
    ppo_micro_batch_size_per_gpu: int = 8
    # Fill each forward and backward pass up to ppo_max_token_len_per_gpu instead.
    use_dynamic_bsz: bool = False
    # Tokens of one forward and backward pass, prompts included.
    ppo_max_token_len_per_gpu: int = 16384
    # Compute a prompt, and what responses to it begin with alike, once a pass; needs model.use_remove_padding.
    use_prefix_grouper: bool = True
    # Run the model's forward and backward passes through torch.compile.
    use_torch_compile: bool = False
    # Keep the reference policy in the machine's memory while it is not used.
    ref_param_offload: bool = False
    # What the ratio is of: a token, or with "gspo" (arXiv:2507.18071) its whole response.
    loss_mode: Literal["vanilla", "gspo"] = "vanilla"
    # The ratio is clipped at 1 minus this.
    clip_ratio_low: float = 0.2
    # The ratio is clipped at 1 plus this; 0.28 is DAPO's clip-higher (arXiv:2503.14476).
    clip_ratio_high: float = 0.2
    # Dual clip; null is off.
    clip_ratio_c: float | None = None
    # How tokens add up to the loss, in verl's names.
    loss_agg_mode: Literal[
        "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
    ] = "token-mean"
    # 0 leaves out the KL term and the reference policy.
    kl_loss_coef: float = 0.001
    # Estimator of the KL to the reference.
    kl_loss_type: Literal["k1", "k2", "k3"] = "k3"
    # Coefficient of the entropy bonus.
    entropy_coeff: float = 0.0
    # Largest norm of the gradient.
    grad_clip: float = 1.0
    optim: OptimConfig = field(default_factory=OptimConfig)


@dataclass(frozen=True)
class FilterGroupsConfig:
    """DAPO's dynamic sampling (arXiv:2503.14476); see `driver/collecting.py` for what differs."""

    # Sample on until data.train_batch_size questions have a gradient, and learn from these alone.
    enable: bool = False
    # Batches sampled for one step, at most; with fewer questions than wanted the step learns from what there is.
    max_num_gen_batches: int = 10


@dataclass(frozen=True)
class AlgorithmConfig:
    """The reward part of the advantage, and which responses are learned from."""

    # False is Dr. GRPO (arXiv:2503.20783), with actor.loss_agg_mode=seq-mean-token-sum-norm.
    norm_adv_by_std_in_grpo: bool = True
    # True keeps responses that were cut off out of the loss, but not out of the rewards of their group: DAPO's overlong
    # filtering (arXiv:2503.14476), under TRL's name.
    mask_truncated_completions: bool = False
    filter_groups: FilterGroupsConfig = field(default_factory=FilterGroupsConfig)


@dataclass(frozen=True)
class ExplorationConfig:
    """Outcome-based exploration; see `group_advantages`."""

    # none, ucb, ucb_mean, ucb_con, batch, batch_positive, or several joined by "+".
    bonus: str = "ucb_con"
    # One coefficient, or one for each method of a sum.
    coef: list[float] = field(default_factory=lambda: [0.1])
    # b0 of ucb_con.
    baseline: float = 0.5
    # Null follows the paper: yes for ucb_mean and ucb_con.
    zero_when_all_correct: bool | None = None
    # Whether a response without an answer can earn a bonus.
    no_answer: Literal["no_bonus", "own_class"] = "no_bonus"
    # What the answer tokens are kept out of: the policy term, only the bonus, the whole loss, or nothing.
    answer_mask_mode: Literal["policy", "bonus", "all", "none"] = "policy"


@dataclass(frozen=True)
class OutcomesConfig:
    """When two final answers are the same; see `OutcomeMatcher`."""

    # Canonical keys first, or math-verify for every pair as the paper did.
    equivalence: Literal["canonical", "math_verify"] = "canonical"
    # math-verify processes; null is one a core.
    workers: int | None = None
    # Seconds that one comparison may take.
    timeout_s: float = 5.0


@dataclass(frozen=True)
class TrainerConfig:
    """The run: its length, place, records and checkpoints. The run's folder is default_local_dir/experiment_name."""

    # Name of the run, and of its folder.
    experiment_name: str = ""
    # Where the folders of runs are.
    default_local_dir: str = "runs"
    # Updates in all; null is total_epochs over the data.
    total_training_steps: int | None = None
    # Used where total_training_steps is null.
    total_epochs: int = 1
    # Evaluate on val_files every so many steps; -1 only at the end.
    test_freq: int = -1
    # Checkpoint every so many steps; -1 only at the end.
    save_freq: int = 25
    # Older checkpoints are removed, but for the best in pass@1 and in pass@k on the validation data.
    max_ckpt_to_keep: int = 2
    # "auto" continues from the newest checkpoint in the run's folder; "disable" refuses a folder that holds a run.
    resume_mode: Literal["auto", "disable"] = "auto"
    # Updates in a row that may be skipped because the gradient is not finite; one more ends the run.
    max_skipped_updates: int = 3
    # Of the order of batches and of sampling.
    seed: int = 0
    # Threads of PyTorch on the CPU; null leaves them alone.
    num_threads: int | None = None
    # What shows the figures, besides metrics.jsonl: console, tensorboard, wandb, trackio.
    logger: list[str] = field(default_factory=lambda: ["console"])
    # Project of the run in W&B and trackio.
    project_name: str = "outcome_rl"
    # Sample completions stored every test_freq steps, and shown at the end.
    log_generations: int = 8


@dataclass(frozen=True)
class TrainConfig:
    """Everything that `outcome-rl train` reads."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    outcomes: OutcomesConfig = field(default_factory=OutcomesConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    @property
    def run_dir(self) -> Path:
        return Path(self.trainer.default_local_dir) / self.trainer.experiment_name
