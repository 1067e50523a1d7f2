"""random options and values, over all commands"""

import re

WORDS = {
    "mask": ["causal", "full", "sliding_window", "prefix_lm_causal", "uniform_block_sparse", "causal_document", "diagonal"],
    "plan": ["usp", "ring-p2p", "ulysses", "balanced", "rings"],
    "list": ["masks", "suites", "strategies", "devices", "cheeses"],
    "run": ["quick", "none.toml"], "verify": [], "report": ["none"], "compare": ["none", "other"], "completion": ["bash", "tcsh"],
}
# Cheap values that fit some option, so that a command gets beyond its first check.
FITTING = ["1", "2", "4", "64", "1K", "2:1", "8:2", "16", "f32", "bf16", "forward", "causal", "full", "causal,full", "cpu-flash",
           "usp", "2x2", "0.5", "true", "yes", "uniform:1:9", "auto", "mask=causal", "seqlen<=1K", "1s"]
NUMBERS = ["0", "-1", "-0", "+1", "00", "007", "0x10", "1e3", "1e999", "-1e999", "nan", "inf", "-inf", "1.5", ".5", "1e-320", "1e30K",
           "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551615",
           "18446744073709551616", "9223372036854775807K", "-9223372036854775808", "9" * 400, "1K1", "K", "1 ", " 1", "1,", ",", ",,"]
TEXTS = ["", " ", "\t", "\n", "a\nb", "\x1b[31m", "\x7f", "\x85", "\u202e", "\u2066", "é", "日本", "\U0001f600", "\udcff", "'", '"', "`id`",
         "$(id)", "{}", "{0}", "%s%n", "--", "-", "-o", "--out", "/", ".", "..", "/dev/null", "/dev/zero", "/proc/self/mem",
         "x" * 5000, "a=b", "a:b", ":", "1:", ":1", "1x", "x1", "1x1x1", "nonsuch.json", "nonsuch.csv", "nonsuch.toml"]


def options_of(t, command):
    """The options of a command, from its help."""
    return sorted(set(re.findall(r"(--[a-z][a-z-]*)", t.run(command, "--help").stdout.split("Example")[0])) - {"--help"})


def value(t):
    kind = t.random.random()
    if kind < 0.4:
        return t.random.choice(FITTING)
    if kind < 0.7:
        return t.random.choice(NUMBERS)
    if kind < 0.9:
        return t.random.choice(TEXTS)
    return ",".join(t.random.choice(FITTING + NUMBERS + TEXTS) for _ in range(t.random.randint(1, 4)))


def command_line(t, options):
    command = t.random.choice(sorted(WORDS))
    words = [command]
    for word in WORDS[command][:2] if command == "compare" else WORDS[command]:
        if t.random.random() < 1 / len(WORDS[command]) or command == "compare":
            words.append(word if t.random.random() < 0.9 else value(t))
    if command in ("mask", "plan") and t.random.random() < 0.9:
        words += ["--seqlen", "1K"]
    if command == "plan" and t.random.random() < 0.9:
        words += ["--mask", "causal", "--ranks", "4"]
    if command == "verify":  # a small case, whatever else is asked
        words += ["--kernel", "cpu-flash", "--mask", "causal", "--seqlen", "65"]
    if command == "run":
        words.append("--dry-run")
    for _ in range(t.random.randint(0, 3)):
        option = t.random.choice(options[command] + ["--nonsuch"]) if options[command] else "--nonsuch"
        if option in ("--out", "--png", "--output"):
            continue  # files_... categories write files
        text = value(t)
        words += [f"{option}={text}"] if t.random.random() < 0.3 else [option, text]
    return [word.replace("\0", "") for word in words]


def attempts(t):
    options = {command: options_of(t, command) for command in WORDS}
    while True:
        words = command_line(t, options)
        result = t.run(*words)
        fault = t.fault(result)
        if result.returncode == 1 and result.stdout:
            fault = None  # `verify` says on standard output what failed
        if "internal error" in result.stderr or ".cpp:" in result.stderr:
            fault = f"an internal error: {result.stderr[:300]}"
        yield repr(words), fault
