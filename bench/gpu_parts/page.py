"""Tables of the measurements on a GPU, from the records of `bench/gpu.py` and `bench/loss.py` alone."""

from typing import Any

from bench.baselines import OURS, SAMPLED
from bench.loss_page import DEAD, MAIN_GPU, OF_NATS
from bench.loss_report import Record, Section, number, of_floor_text
from bench.result_file import measured_on

LOGITS = "Qwen2.5-1.5B, from logits, 4k"


def predictions_table(speed: dict[str, Any], loss: Record) -> str:
    """Return what was predicted for an H200 before one was at hand, and what was measured."""
    found, sections = speed["figures"]["checks"], loss["figures"]["sections"]
    products, passes, supports = (found[name]["figures"] for name in ("products", "row_passes", "time_of_supports"))
    main, dead = sections[MAIN_GPU], sections[DEAD]
    case, own = main["case"], _row(main, OURS)
    gradients_gib = 2 * (case["rows"] + case["vocabulary"]) * case["hidden"] / 2**30
    rates = [row["TFLOP/s"] for row in products.values() if isinstance(row, dict) and "TFLOP/s" in row]
    computed = dead["case"]["tokens"] - dead["case"]["dead_tokens"]
    rows = [
        (
            "every token has a gradient",
            "71.5 ms (68 to 76)",
            f"{_ms(own['times'])}; its products {_ms(main['floors'])}",
        ),
        (
            "45 % of the tokens have no advantage",
            "39.8 ms (38.3 to 42) for 9,011 tokens with a gradient",
            f"{_ms(_row(dead, OURS)['times'])} for {computed:,}",
        ),
        (
            "memory beyond inputs and gradients",
            "1.96 GiB",
            f"{own['peak_mib'] / 1024 - gradients_gib:.2f} GiB",
        ),
        ("16 tokens kept at each position", "2.15 ms (to 3.5)", _times(supports["support of 16"])),
        (
            "as top-p .95 keeps them",
            "12.0 ms for 117 in the mean",
            f"{_times(supports['support of top-p 0.95'])} for 100",
        ),
        ("row pass over 8,192 rows, as part of the above", "1.1 to 1.5 ms", _times(passes["on-policy"])),
        ("matrix products", "740 to 790 TFLOP/s", f"{min(rates):.0f} to {max(rates):.0f} TFLOP/s"),
    ]
    lines = ["| forward and backward | predicted | measured |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    logits = sections[LOGITS]
    times = [f"{row['name']} {_ms(row['times'])}" for row in logits["rows"] if row["times"]]
    lines.append(
        f"\n`policy_loss`, from the logits of {logits['case']['tokens']:,} tokens of Qwen2.5-1.5B: {'; '.join(times)}; "
        f"a copy of the logits {_ms(logits['floors'])}.\n\n{measured_on(speed)}"
    )
    return "\n".join(lines) + "\n"


def sampled_table(record: Record) -> str:
    """Return what was predicted for the loss on a language model's logits, and what an H200 measured."""
    predicted = {
        0.1: {OURS: "1.03 to 1.05", SAMPLED: ".42 to .52", "CCE": ".9 to 1.2"},
        0.46: {OURS: "1.03 to 1.05", SAMPLED: ".43 to .55", "CCE": ".95 to 1.3"},
        2.2: {OURS: "1.03 to 1.05", SAMPLED: ".54 to .85", "CCE": "1.2 to 2"},
    }
    losses = (OURS, SAMPLED, "CCE")
    lines = [
        f"| entropy | {' | '.join(f'{name}, predicted | measured' for name in losses)} |",
        f"|---|{'---|---|' * len(losses)}",
    ]
    for nats, ranges in predicted.items():
        section = record["figures"]["sections"][OF_NATS[nats]]
        cells = [f"{ranges[name]} | {of_floor_text(_row(section, name), section)}" for name in losses]
        lines.append(f"| {nats:g} nats | {' | '.join(cells)} |")
    return "\n".join([*lines, f"\n{measured_on(record)}\n"])


def counts_table(record: dict[str, Any]) -> str:
    """Return the device time of counting, and of a step's advantages."""
    found = record["figures"]["checks"]
    observed = found["time_of_counting"]["figures"]["observe"]
    sizes = sorted({row["rows"] for row in observed})
    lines = [f"| pairs | {' | '.join(f'{size:,} samples' for size in sizes)} |", f"|---|{'---:|' * len(sizes)}"]
    for entries in sorted({row["entries"] for row in observed}):
        times = {row["rows"]: row["triton_us"] for row in observed if row["entries"] == entries}
        lines.append(f"| {entries:,} | {' | '.join(f'{number(times[size])} us' for size in sizes)} |")
    steps = [row["triton_us"] for row in found["time_of_a_step"]["figures"]]
    first = found["time_of_a_step"]["figures"][0]
    launch, by_host = first["launch_us"], first["copy to the host and back_us"]
    lines.append(
        f"\nThe advantages of a step, 256 x 8 samples with {first['entries']:,} pairs counted, take {min(steps):.0f} "
        f"to {max(steps):.0f} us of the GPU, and {launch:.0f} us of the host to launch ({by_host:.0f} us by way of the "
        f"CPU's table). {measured_on(record)}"
    )
    return "\n".join(lines) + "\n"


def _row(section: Section, name: str) -> Any:
    return next(row for row in section["rows"] if row["name"] == name)


def _ms(modes: Any) -> str:
    """Return the time of forward and backward from the times of all modes."""
    return _times(modes["forward_backward"])


def _times(times: Any) -> str:
    middle, low, high = (number(times[name]) for name in ("median_ms", "p20_ms", "p80_ms"))
    return f"{middle} ms" + ("" if low == high else f" ({low} to {high})")
