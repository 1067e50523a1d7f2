"""Training examples/train_packed.py's model of some 1B parameters on 32K packed tokens, by Longspan and by others.

    PYTHONPATH=build-cuda/python python3 tools/probes/train_step.py [--attention NAME...] [--steps N] [--longest L]

Each attention trains the same model from the same start on the same documents, in a process of its own. All of a step counts:
drawing documents, masks and plans too. What synchronises or allocates from the fourth step on is counted by PyTorch's profiler.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))

TOKENS, WIDTH, LAYERS, HEADS, HEADS_KV, VOCABULARY = 32768, 2048, 20, 16, 4, 32000
PROFILED = range(4, 8)  # steps


def attention_and_masks(name):
    """(attention(q, k, v, mask), mask_of(lengths))"""
    import torch
    import longspan
    if name == "longspan":
        return longspan.attention, longspan.Mask.documents

    def lengths_on_gpu(lengths):
        boundaries = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return boundaries.pin_memory().cuda(non_blocking=True)

    if name == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        flex = torch.compile(flex_attention)
        make = torch.compile(create_block_mask)

        def block_mask(lengths):
            owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).pin_memory().cuda(non_blocking=True)
            return make(lambda b, h, q, k: (q >= k) & (owner[q] == owner[k]), None, None, TOKENS, TOKENS, device="cuda")

        def attention(q, k, v, mask):
            o = flex(*(x.transpose(0, 1)[None] for x in (q, k, v)), block_mask=mask, enable_gqa=True)
            return o[0].transpose(0, 1)
        return attention, block_mask
    if name == "fa2":
        from torch.nn.attention.varlen import varlen_attn

        def attention(q, k, v, mask):
            boundaries, longest = mask
            group = q.shape[1] // k.shape[1]  # varlen_attn has no groups of heads
            k, v = (x.repeat_interleave(group, 1) for x in (k, v))
            return varlen_attn(q, k, v, boundaries, boundaries, longest, longest, window_size=(-1, 0))
        return attention, lambda lengths: (lengths_on_gpu(lengths), max(lengths))
    if name == "sdpa":
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        def dense_mask(lengths):
            owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).pin_memory().cuda(non_blocking=True)
            return (owner[:, None] == owner[None, :]).tril_()

        def attention(q, k, v, mask):
            group = q.shape[1] // k.shape[1]
            k, v = (x.repeat_interleave(group, 1) for x in (k, v))
            return sdpa(*(x.transpose(0, 1)[None] for x in (q, k, v)), attn_mask=mask)[0].transpose(0, 1)
        return attention, dense_mask
    raise ValueError(f"attention {name!r}: must be longspan, flex, fa2 or sdpa")


def train(name, steps, longest):
    import torch
    import train_packed
    attention, mask_of = attention_and_masks(name)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    with torch.device("cuda"):
        model = train_packed.GPT(VOCABULARY, WIDTH, LAYERS, HEADS, HEADS_KV, attention).to(torch.bfloat16)
    for block in model.blocks:  # all but attention itself, the same for each
        block.queries_keys_values = torch.compile(block.queries_keys_values)
        block.after = torch.compile(block.after)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    losses, times = [], []
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True)
    ends = torch.cuda.Event()
    for step in range(steps):
        if step == PROFILED[0]:
            torch.cuda.synchronize()
            profile.start()
        begin = time.perf_counter()
        lengths, tokens = train_packed.draw_documents(TOKENS, generator, longest)
        batch = train_packed.Batch(tokens, lengths, "cuda")
        loss = train_packed.sum_of_losses(model, batch, mask_of(lengths)) / batch.count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if step == PROFILED[-1]:
            profile.stop()
        ends.record()
        ends.synchronize()  # so that a time is a step's own
        times.append(time.perf_counter() - begin)
    waits = {}
    for event in profile.events():
        if any(word in event.name for word in ("Synchronize", "cudaMalloc", "cudaFree", "cuMem")):
            waits[event.name] = waits.get(event.name, 0) + 1
    steady = [t for step, t in enumerate(times) if step > PROFILED[-1]]
    print(json.dumps({
        "attention": name, "longest_document": longest, "parameters": sum(p.numel() for p in model.parameters()), "steps": steps,
        "median_step_s": round(statistics.median(steady), 4), "tokens_per_s": round(TOKENS / statistics.median(steady)),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1), "waits_and_allocations": waits,
        "losses": [round(float(x), 4) for x in losses[:: max(1, steps // 20)]], "last_loss": round(float(losses[-1]), 4)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", nargs="+", default=["longspan", "flex", "fa2", "sdpa"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--longest", type=int, default=TOKENS // 3, help="documents are shorter than this")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return train(options.one, options.steps, options.longest)
    for name in options.attention:
        subprocess.run([sys.executable, __file__, "--one", name, "--steps", str(options.steps), "--longest",
                        str(options.longest)])


if __name__ == "__main__":
    main()
