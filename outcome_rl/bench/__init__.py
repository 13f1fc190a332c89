"""Benchmarks of `outcome-rl bench NAME`: each module NAME measures one part of the library on this machine.

A benchmark has `main(argv)` with its own options, prints its figures, and writes a record into the folder `--out`.
"""

BENCHMARKS = {
    "loss": "time, memory and error of the policy loss, compared with its peers and with its matrix products alone",
    "counts": "the count table and the group advantages, compared with a dictionary, numpy and copies to the host",
    "outcomes": "outcome keys and other graders: accuracy on labelled pairs, agreement, throughput",
    "step": "time of a whole training step and its parts, and its memory, compared with a plain loop and with TRL",
}
