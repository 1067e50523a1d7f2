#!/usr/bin/env python3
"""Writes made-up results in the schema of docs/reference/results.md, for tests of the report.

Nothing here was measured, and the device's name says so. Usage:
    synthetic_results.py OUT.jsonl [--kind cpu|gpu|sparse|hostile] [--seed N] [--speed FACTOR]
    synthetic_results.py OUT.jsonl --kind many --rows 100000
"""
import argparse
import base64
import functools
import hashlib
import itertools
import json
import random

DENSE = ["full", "causal", "full_document", "causal_document", "sliding_window", "sliding_window_causal",
         "share_question", "causal_blockwise", "prefix_lm_causal", "prefix_lm_document", "global_sliding_window",
         "block_causal_document"]
DENSITY = {"full": 1.0, "causal": 0.5, "full_document": 0.12, "causal_document": 0.06, "sliding_window": 0.06,
           "sliding_window_causal": 0.03, "share_question": 0.15, "causal_blockwise": 0.1, "prefix_lm_causal": 0.6,
           "prefix_lm_document": 0.08, "global_sliding_window": 0.3, "block_causal_document": 0.12}
DOCUMENTS = {"full_document", "causal_document", "share_question", "causal_blockwise", "prefix_lm_document"}
HOSTILE = "</script><script>window.broken=1</script><img src=x onerror=window.broken=1>&lt;\"'<!--\u2028"


@functools.cache
def picture(mask, size=64):
    cells = bytearray()
    for i in range(size):
        for j in range(size):
            doc = (i // 11) == (j // 11)
            seen = {"full": True, "causal": j <= i, "full_document": doc, "causal_document": doc and j <= i,
                    "sliding_window": abs(i - j) <= 4, "sliding_window_causal": 0 <= i - j <= 4,
                    "share_question": j <= i and (doc or j < 11), "causal_blockwise": j <= i and (doc or i >= 55),
                    "prefix_lm_causal": j <= i or (i < 26 and j < 26), "prefix_lm_document": doc and j <= i + 3,
                    "global_sliding_window": j < 9 or i < 9 or abs(i - j) <= 4,
                    "block_causal_document": doc and j // 4 <= i // 4}.get(mask)
            if seen is None:
                seen = random.Random(f"{mask}{i // 4},{j // 4}").random() < 0.4
            cells.append(0 if not seen else 128 if i == j and "causal" in mask else 255)
    return {"size": size, "data": base64.b64encode(cells).decode()}


def run_line(run, device, ceilings, command, suite):
    kind = "cuda" if "GPU" in device else "cpu"
    return {"type": "run", "schema": 1, "run": run, "started": "2026-01-02T03:04:05Z", "command": command,
            "suite": suite,
            "machine": {"kind": "synthetic", "cpu_model": "Synthetic CPU (nothing was measured)", "cpus": 2,
                        "memory_bytes": 8 << 30, "llc_bytes": 32 << 20, "governor": "performance",
                        "load_1min": 0.1, "os": "Debian 12", "kernel": "6.1"},
            "device": {"kind": kind, "name": device, "units": 132 if kind == "cuda" else 2,
                       "capability": 90 if kind == "cuda" else None, "memory_bytes": 8 << 30,
                       "cache_bytes": 32 << 20},
            "software": {"longspan": "0.1.0", "commit": "0123456789abcdef", "dirty": False, "compiler": "GNU 12.2.0",
                         "build_type": "Release", "libraries": {"fmt": "9.1.0", "hwy": "1.0.3"}},
            "rule": {"warmup_s": 0.1, "min_samples": 10, "max_samples": 200, "budget_s": 2, "half_width": 0.01,
                     "confidence": 0.95, "cold_cache": True, "timeout_s": 60},
            "ceilings": {d: {"flops_per_s": c, "what": "8192^3 matrix product", "samples_s": [1.0]}
                         for d, c in ceilings.items()}}


def case_line(run, rng, case, share, ceiling, noise=0.01, status="ok", reason=None):
    line = {"type": "case", "schema": 1, "run": run,
            "id": hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()[:16], "case": case,
            "command": "longspan run --kernel {kernel} --mask {mask} --seqlen {seqlen} --direction {direction}".format(
                **case), "status": status, "started": "2026-01-02T03:05:00Z", "elapsed_s": 3.2}
    density = case["options"].get("density", DENSITY.get(case["mask"], 0.5))
    area = density * case["heads_q"] * case["seqlen"] ** 2
    flops = 4 * area * case["head_dim"] * (2.5 if case["direction"] == "backward" else 1)
    line.update(area=int(area), density=density, flops=flops, picture=picture(case["mask"]))
    if status != "ok":
        line["reason"] = reason
        return line
    time = flops / (share * ceiling) + 5e-6
    samples = [round(time * (1 + abs(rng.gauss(0, noise))), 12) for _ in range(40)]
    median = (sorted(samples)[19] + sorted(samples)[20]) / 2
    interval = [sorted(samples)[13], sorted(samples)[26]]
    outputs = ["o", "lse"] if case["direction"] == "forward" else ["dq", "dk", "dv"]
    tolerance = 2e-5 if case["dtype"] == "f32" else 2e-2
    line.update(
        time_s=median, interval_s=interval, flops_per_s=flops / median, share_of_ceiling=flops / median / ceiling,
        plan_s=1e-4, plan_bytes=case["seqlen"] * 8, workspace_bytes=0,
        peak_bytes=case["seqlen"] * 64 * (case["seqlen"] // 64 if "naive" in case["kernel"] else 16),
        accuracy={"checked": outputs, "max_error": {t: tolerance * rng.uniform(0.05, 0.4) for t in outputs},
                  "tolerance": {t: tolerance for t in outputs}, "counting": "pass", "rows": 64, "columns": 64},
        throttled=0,
        measurements=[{"index": 0, "area": int(area), "flops": flops, "params": {}, "documents": 3, "plan_s": 1e-4,
                       "median_s": median, "interval_s": interval, "converged": rng.random() > 0.05,
                       "samples_s": samples}])
    return line


def make_case(kernel, mask, seqlen, direction, heads=(8, 2), head_dim=128, dtype="f32", **options):
    return {"kernel": kernel, "mask": mask, "options": options, "seqlen": seqlen, "heads_q": heads[0],
            "heads_kv": heads[1], "head_dim": head_dim, "dtype": dtype, "direction": direction, "masks": 1,
            "lengths": "auto" if mask in DOCUMENTS else "", "seed": 42}


def cpu(rng, speed):
    ceiling = 1.2e11
    yield run_line("00000000000000c1", "Synthetic CPU (nothing was measured)", {"f32": ceiling},
                   "longspan run suites/quick.toml --out out/quick", "quick")
    shares = {"cpu-flash": 0.62 * speed, "cpu-naive": 0.21}
    for mask in DENSE + ["uniform_block_sparse"]:
        for seqlen in (512, 1024, 2048):
            for direction in ("forward", "backward"):
                for kernel, share in shares.items():
                    options = {"density": 0.2, "block": 64} if "sparse" in mask else {}
                    case = make_case(kernel, mask, seqlen, direction, **options)
                    share_here = share * rng.uniform(0.85, 1.1) * (DENSITY.get(mask, 0.4) ** 0.15)
                    if kernel == "cpu-naive":
                        share_here *= DENSITY.get(mask, 0.4)
                    if kernel == "cpu-naive" and seqlen == 2048 and direction == "backward":
                        yield case_line("00000000000000c1", rng, case, 1, 1, status="skipped",
                                        reason="needs 17 GiB for the scores, of 8 GiB; use cpu-flash")
                    elif (kernel, mask, seqlen, direction) == ("cpu-flash", "share_question", 1024, "forward"):
                        yield case_line("00000000000000c1", rng, case, 1, 1, status="failed",
                                        reason="timed out after 60 s in verification")
                    else:
                        yield case_line("00000000000000c1", rng, case, share_here, ceiling, 0.02)


def gpu(rng, speed):
    ceiling = 7.9e14
    run = "00000000000000d1"
    yield run_line(run, "Synthetic GPU (nothing was measured)", {"bf16": ceiling},
                   "longspan run suites/dense.toml --out out/dense", "dense")
    shares = {"sm90": 0.88 * speed, "torch-cudnn": 0.8, "torch-fa2": 0.45, "torch-efficient": 0.35,
              "torch-math": 0.05, "flex": 0.55, "fa3": 0.86, "fa4": 0.8, "flashinfer": 0.6, "flashmask": 0.66,
              "gpu-naive": 0.06, "some-new-kernel": 0.3}
    for mask in DENSE:
        for seqlen in (1024, 2048, 4096, 8192, 16384, 24576, 32768, 40960, 49152):
            for direction in ("forward", "backward"):
                for kernel, share in shares.items():
                    case = make_case(kernel, mask, seqlen, direction, (64, 8), 128, "bf16")
                    if kernel in ("torch-fa2", "fa3", "torch-cudnn") and mask not in (
                            "full", "causal", "full_document", "causal_document", "sliding_window_causal"):
                        yield case_line(run, rng, case, 1, 1, status="skipped",
                                        reason=f"cannot express {mask} exactly")
                    elif kernel in ("gpu-naive", "torch-math") and seqlen > 16384:
                        yield case_line(run, rng, case, 1, 1, status="failed",
                                        reason="out of memory (needs 412 GiB, 138 GiB free)")
                    else:
                        ramp = seqlen / (seqlen + 3000)
                        yield case_line(run, rng, case, share * ramp * rng.uniform(0.93, 1.03) *
                                        DENSITY[mask] ** 0.08, ceiling)


def sparse(rng, speed):
    ceiling = 7.9e14
    run = "00000000000000f1"
    yield run_line(run, "Synthetic GPU (nothing was measured)", {"bf16": ceiling},
                   "longspan run suites/sparse.toml --out out/sparse", "sparse")
    for heads in ((4, 4), (32, 4)):
        for seqlen in (16384, 49152, 131072):
            for block in (64, 128):
                for density in (0.1, 0.2, 0.5, 0.8, 1):
                    for direction in ("forward", "backward"):
                        for kernel, share in {"sm90": 0.8 * speed, "vsa": 0.68, "flex": 0.4}.items():
                            case = make_case(kernel, "uniform_block_sparse", seqlen, direction, heads, 128, "bf16",
                                             block=block, density=density)
                            if kernel == "vsa" and (heads != (4, 4) or block != 64):
                                yield case_line(run, rng, case, 1, 1, status="skipped",
                                                reason="needs heads_q == heads_kv and blocks of 64")
                            else:
                                yield case_line(run, rng, case, share * density ** 0.1 * rng.uniform(0.95, 1.02),
                                                ceiling)


def deterministic(rng, speed):
    """A kernel in its fastest form, and in the form that gives the same bits on every run."""
    ceiling, run = 7.9e14, "00000000000000b2"
    yield run_line(run, "Synthetic GPU (nothing was measured)", {"bf16": ceiling}, "longspan run deterministic.toml", "bits")
    for mask in ("full", "causal"):
        for seqlen in (8192, 32768):
            for demanded in (False, True):
                case = make_case("sm90", mask, seqlen, "backward", (64, 8), 128, "bf16")
                if demanded:
                    case["deterministic"] = True
                line = case_line(run, rng, case, (0.6 if demanded else 0.7) * speed, ceiling)
                if demanded:
                    line["accuracy"]["same_bits"] = True
                yield line


def sinks(rng, speed):
    """A kernel with attention sinks, and without."""
    ceiling, run = 7.9e14, "00000000000000b3"
    yield run_line(run, "Synthetic GPU (nothing was measured)", {"bf16": ceiling}, "longspan run sinks.toml", "sinks")
    for seqlen in (8192, 32768):
        for added in (False, True):
            case = make_case("sm90", "causal", seqlen, "forward", (64, 8), 64, "bf16") | ({"sinks": True} if added else {})
            yield case_line(run, rng, case, (0.6 if added else 0.7) * speed, ceiling)


def builds(rng, speed):
    """Two builds in one file: the later one measured a third kernel at one length."""
    ceiling = 7.9e14
    for run, lengths, shares in (("00000000000000e2", (8192, 32768), {"sm90": 0.8, "flex": 0.5}),
                                 ("00000000000000e3", (8192,), {"sm90": 0.8, "flex": 0.5, "fa4": 0.9})):
        line = run_line(run, "Synthetic GPU (nothing was measured)", {"bf16": ceiling}, "longspan run order.toml", "order")
        line["software"]["commit"] = run
        yield line
        for seqlen in lengths:
            for kernel, share in shares.items():
                yield case_line(run, rng, make_case(kernel, "full", seqlen, "forward", (64, 8), 128, "bf16"), share * speed, ceiling)


def parallel(rng, speed):
    """Strategies on four ranks of a ring, one of them measured with a later build, and the same kernel on one device."""
    ceiling, run, later, ranks, seqlen = 7.9e14, "00000000000000b1", "00000000000000b2", 4, 32768
    for each in (run, later):
        line = run_line(each, "Synthetic GPU (nothing was measured)", {"bf16": ceiling},
                        "longspan run suites/cp.toml --out out/cp", "cp")
        line["software"]["commit"] = each
        yield line
    for mask in ("full", "causal", "causal_document"):
        for direction in ("forward", "backward"):
            yield case_line(run, rng, make_case("sm90", mask, seqlen, direction, (64, 8), 128, "bf16"), 0.85, ceiling)
            for strategy, share in {"ulysses": 3.3, "ring-p2p": 2.6 * speed, "balanced": 3.4}.items():
                case = make_case("sm90", mask, seqlen, direction, (64, 8), 128, "bf16")
                case.update(strategy=strategy, ranks=ranks)
                line = case_line(later if strategy == "balanced" else run, rng, case, share, ceiling)
                time, area = line["time_s"], line["area"] // ranks
                rounds = ranks if strategy == "ring-p2p" else 2
                chunk = seqlen // (2 * ranks)
                line["parallel"] = {
                    "ranks": ranks, "nodes": 1, "transport": "threads", "rounds": rounds, "imbalance": 1.02, "spread": 0.03,
                    **{key: [part * time * rng.uniform(0.97, 1) for _ in range(ranks)] for key, part in {
                        "rank_time_s": 1, "compute_s": 0.8, "exposed_s": 0.1, "reorder_s": 0.03, "merge_s": 0.04}.items()},
                    **{key: [1 << 24] * ranks for key in ("sent_bytes", "predicted_bytes", "peak_copy_bytes")},
                    "between_nodes_bytes": [0] * ranks, "area": [area] * ranks,
                    "difference": {"o": 3.2e-3}, "single_error": {"o": 2.9e-3},
                    "plan": {"rounds": rounds,
                             "owned": [[[r * chunk, (r + 1) * chunk], [seqlen - (r + 1) * chunk, seqlen - r * chunk]]
                                       for r in range(ranks)],
                             "by_round": [{"area": [area // rounds] * ranks, "sent_bytes": [1 << 22] * ranks,
                                           "between_nodes_bytes": [0] * ranks,
                                           "moves": [["kv", (r + ranks - 1) % ranks, r, 1 << 22] for r in range(ranks)]
                                           if i else []} for i in range(rounds)]}}
                yield line


def simulated(rng, speed):
    """The strategies of `parallel` on four ranks, and predictions of them on four to 32, with as many tokens for each."""
    yield from parallel(rng, speed)
    for mask in ("full", "causal_document"):
        for direction in ("forward", "backward"):
            for strategy in ("ulysses", "usp"):
                for ranks in (4, 8, 32):
                    case = make_case("sm90", mask, 8192 * ranks, direction, (64, 8), 128, "bf16")
                    case.update(strategy=strategy, ranks=ranks, transport="nccl")
                    if strategy == "usp":
                        case.update(placement="context-first")
                    yield {"type": "simulated", "schema": 1, "case": case, "status": "ok", "time_s": 0.01, "interval_s": [0.008, 0.02],
                           "flops_per_s_per_rank": 6e14 - 1e12 * ranks, "parallel": {"ranks": ranks},
                           "machine": {"name": "nodes of synthetic GPUs", "measured": False}}


def workload(rng, speed):
    """Three steps of two micro-batches with two strategies, one of which failed once; and nothing else."""
    ceiling, run = 7.9e14, "00000000000000c2"
    yield run_line(run, "Synthetic GPU (nothing was measured)", {"bf16": ceiling}, "longspan run --workload w.jsonl", "workload")
    for strategy, share in {"usp": 2.5 * speed, "balanced": 3.4}.items():
        lines, steps = [], []
        for step in range(3):
            steps.append([[]])
            for batch in range(2):
                for direction in ("forward", "backward"):
                    case = make_case("sm90", "causal_document", 8192 * (1 + step), direction, (64, 8), 128, "bf16")
                    case.update(strategy=strategy, ranks=4, lengths=f"list:{4096 * (1 + step)}:{4096 * (1 + step) - batch}:{1 + batch}")
                    failed = strategy == "usp" and (step, batch) == (1, 0)
                    line = case_line(run, rng, case, share, ceiling, status="failed" if failed else "ok", reason="made to fail")
                    line["parallel"] = {"ranks": 4, "area": [100, 100, 100, 140],
                                        **{key: [0.1 * line.get("time_s", 1)] * 4 for key in ("rank_time_s", "compute_s", "exposed_s")},
                                        "plan": {"owned": [[[0, 10]], [[10, 20]], [[20, 30]], [[30, 40]]]}}
                    lines.append(line)
                    steps[-1][0].append(line["id"])
        yield {"type": "workload", "schema": 1, "run": run, "workload": "w.jsonl", "hash": "00", "layers": 8, "steps": steps}
        yield from lines


def many(rng, speed, rows):
    """That many distinct cases of one run, as a sweep over lengths would measure them."""
    ceiling, run = 7.9e14, "00000000000000a1"
    yield run_line(run, "Synthetic GPU (nothing was measured)", {"bf16": ceiling}, "longspan run many.toml", "many")
    kernels = {"sm90": 0.8 * speed, "fa3": 0.75, "flex": 0.5}
    axes = list(itertools.product(DENSE, ("forward", "backward"), (64, 128), kernels))
    for row in range(rows):
        mask, direction, head_dim, kernel = axes[row % len(axes)]
        case = make_case(kernel, mask, 128 * (1 + row // len(axes)), direction, (64, 8), head_dim, "bf16")
        yield case_line(run, rng, case, kernels[kernel] * rng.uniform(0.95, 1.02), ceiling)


def hostile(rng, speed):
    """Hostile text for HTML, scripts and terminals in every string of a results file."""
    run = "00000000000000e1"
    line = run_line(run, HOSTILE, {"f32": 1e11}, HOSTILE, HOSTILE)
    for part in ("machine", "software"):
        line[part][HOSTILE] = HOSTILE
    line["ceilings"][HOSTILE] = {"flops_per_s": 1e10, "what": HOSTILE}
    yield line
    for seqlen in (1024, 2048):
        case = make_case("cpu-flash", "causal", seqlen, "forward", strategy=HOSTILE)
        good = case_line(run, rng, case, 0.5, 1e11)
        good["command"] = HOSTILE
        good["parallel"] = {"ranks": 1, "transport": HOSTILE, "difference": {HOSTILE: 1}, "compute_s": [1], "rank_time_s": [2],
                            "plan": {"owned": [[[0, seqlen]]], "by_round": [{"area": [1], "moves": [[HOSTILE, 0, 0, 1]]}]}}
        yield good
        case = make_case(HOSTILE, HOSTILE, seqlen, HOSTILE, dtype=HOSTILE)
        case["lengths"] = case[HOSTILE] = HOSTILE
        bad = case_line(run, rng, case, 0.4, 1e11)
        bad["accuracy"]["max_error"][HOSTILE] = 1e-9
        bad["accuracy"]["tolerance"][HOSTILE] = 1e-5
        bad["accuracy"]["counting"] = HOSTILE
        bad["device_state"] = {HOSTILE: HOSTILE}
        yield bad
    case = make_case(HOSTILE, "causal_document", 512, "forward", strategy=HOSTILE)
    step = case_line(run, rng, case, 1, 1, status="failed", reason=HOSTILE)
    yield step
    yield {"type": "workload", "schema": 1, "run": run, "workload": HOSTILE, "hash": HOSTILE, "layers": 1, "steps": [[[step["id"], HOSTILE]]]}
    for status in ("skipped", "failed"):
        case = make_case("cpu-naive" + status, "full", 1024, "forward")
        yield case_line(run, rng, case, 1, 1, status=status, reason=HOSTILE)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--kind", choices=("cpu", "gpu", "sparse", "parallel", "deterministic", "sinks", "builds", "hostile", "workload", "simulated", "many"),
                        default="cpu")
    parser.add_argument("--rows", type=int, default=1000, help="cases of --kind many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", type=float, default=1.0, help="of the first kernel, to make two sets that differ")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    more = (args.rows,) if args.kind == "many" else ()
    with open(args.out, "w", encoding="utf-8") as out:
        for line in {"cpu": cpu, "gpu": gpu, "sparse": sparse, "parallel": parallel, "deterministic": deterministic, "sinks": sinks, "simulated": simulated,
                     "builds": builds, "hostile": hostile, "workload": workload, "many": many}[args.kind](rng, args.speed, *more):
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
