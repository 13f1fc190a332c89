"""What `outcome-rl bench NAME` runs: each module NAME measures one part of the library on this machine.

A benchmark has `main(argv)` with options of its own, prints its figures and writes them with `record.write_result`.
"""

BENCHMARKS = {
    "loss": "Time, memory and error of the policy loss, beside its peers and the floor of its matrix products.",
    "counts": "The count table and the group advantages, against a dictionary, numpy and copies to the host.",
    "outcomes": "Outcome keys beside other graders: accuracy on labelled pairs, agreement, throughput.",
    "loop": "A training step of the toy task and its parts, beside generate and an eager loss.",
    "step": "Tokens a second and peak memory of a training step and a rollout, beside TRL's GRPOTrainer.",
}
