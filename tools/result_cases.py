"""The measured cases of results files, for the scripts that make tables of them."""

import json
import pathlib


class Case:
    """One measured case, with its run's machine and build."""

    def __init__(self, line, run):
        case, ceilings = line["case"], run["ceilings"]
        self.gpu, self.device = run["device"].get("uuid"), run["device"]["name"]
        self.commit, self.started = run["software"]["commit"], run["started"]
        self.build = self.commit[:7] + (" with changes" if run["software"]["dirty"] else "")
        self.kernel, self.mask, self.seqlen, self.direction = (case[k] for k in ("kernel", "mask", "seqlen", "direction"))
        self.heads, self.head_dim, self.dtype = f"{case['heads_q']}:{case['heads_kv']}", case["head_dim"], case["dtype"]
        self.head_dim_v = case.get("head_dim_v", self.head_dim)
        self.options, self.lengths = case["options"], case.get("lengths")  # lengths: where those of documents come from
        self.block, self.block_density = self.options.get("block"), self.options.get("density")
        self.deterministic = case.get("deterministic", False)
        self.scores = scores_text(case)
        self.problem = json.dumps({k: v for k, v in case.items() if k != "kernel"}, sort_keys=True)
        self.fast_problem = json.dumps({k: v for k, v in case.items() if k not in ("kernel", "deterministic")}, sort_keys=True)
        self.rate, self.time_s, self.plan_s, self.density = (line[k] for k in ("flops_per_s", "time_s", "plan_s", "density"))
        self.share = self.rate / ceilings[self.dtype]["flops_per_s"] if self.dtype in ceilings else None
        self.converged = all(measurement["converged"] for measurement in line["measurements"])
        self.versions = line.get("versions", {})

    @property
    def block_sparse(self):
        return self.mask.endswith("_block_sparse")

    def __str__(self):
        length = tokens_text(self.seqlen)
        if not self.block_sparse:
            return f"{self.mask} {length}"
        blocks = self.mask.removesuffix("_block_sparse")
        return f"{blocks} blocks of {self.block}, {length}, density {self.block_density:g}, {self.heads}"


def scores_text(case):
    """What else the softmax has in it: "sinks, softcap 30"; empty in plain attention."""
    parts = {"sinks": "sinks", "softcap": f"softcap {case.get('softcap', 0):g}", "alibi": "ALiBi"}
    return ", ".join(text for key, text in parts.items() if case.get(key))


def tokens_text(tokens):
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else f"{tokens}"


def read(paths):
    """The cases of one device by (kernel, problem); a later line replaces an earlier one."""
    cases, runs = {}, {}
    for path in paths:
        for line in map(json.loads, pathlib.Path(path).read_text().splitlines()):
            if line["type"] == "run":
                runs[line["run"]] = line
            elif line["type"] == "case" and line["status"] == "ok" and "parallel" not in line:
                case = Case(line, runs[line["run"]])
                cases[case.kernel, case.problem] = case
    return cases
