"""The policy: loading, packed forward passes, LoRA, FSDP, master weights."""
