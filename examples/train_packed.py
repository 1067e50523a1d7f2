"""Trains a small GPT on packed documents, on the CPU or a GPU.

    python examples/train_packed.py [--steps N] [--tokens T] [--check] [--width W] [--layers L] [--heads Q KV]
    torchrun --standalone --nproc-per-node 2 examples/train_packed.py --cp 2 [--strategy NAME]

Documents of random lengths lie one after another in each step's batch of T tokens, without padding, and do not see each
other. --check also computes the loss and the gradients of the separate documents, and compares. On a GPU, training waits for it
only to print. With --cp, that many ranks share each batch by context parallelism: the losses are those of one process.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import longspan
from longspan.distributed import ContextParallel


class Block(nn.Module):
    def __init__(self, width, heads, heads_kv, attention):
        super().__init__()
        self.attention = attention
        self.heads, self.heads_kv, self.head_dim = heads, heads_kv, width // heads
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * heads_kv) * self.head_dim, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, turn, mask):  # x [tokens, width]
        return self.after(x, self.attention(*self.queries_keys_values(x, turn), mask))

    def queries_keys_values(self, x, turn):
        qkv = self.qkv(self.before_attention(x)).unflatten(-1, (-1, self.head_dim))
        q, k, v = qkv.split([self.heads, self.heads_kv, self.heads_kv], 1)
        return rotate(q, *turn), rotate(k, *turn), v

    def after(self, x, o):
        x = x + self.out(o.flatten(1))
        return x + self.mlp(self.before_mlp(x))


def rotate(x, cos, sin):
    """Rotary position embedding."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class GPT(nn.Module):
    def __init__(self, vocabulary=256, width=256, layers=4, heads=4, heads_kv=2, attention=longspan.attention):
        """attention: a function of q [tokens, heads, head_dim], k, v [tokens, heads_kv, head_dim] and the mask."""
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, heads_kv, attention) for _ in range(layers))
        self.last = nn.Sequential(nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False))

    def forward(self, tokens, positions, mask):  # positions: within the document
        x = self.embed(tokens)
        half = self.blocks[0].head_dim // 2
        angle = positions[:, None, None] * 10000 ** (-torch.arange(half, device=x.device) / half)
        turn = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, turn, mask)
        return self.last(x)


def draw_documents(count, generator, longest=None):
    """Lengths below `longest`, count / 3 by default, that fill `count` tokens, and the text: runs that count up, so there is
    something to learn."""
    longest = max(9, count // 3) if longest is None else longest
    lengths = []
    while (left := count - sum(lengths)) > 0:
        lengths.append(min(left, int(torch.randint(8, longest, (), generator=generator))))
    starts = torch.randint(256, (len(lengths),), generator=generator)
    steps = torch.randint(1, 4, (len(lengths),), generator=generator)
    documents = [(start + step * torch.arange(n)) % 256 for n, start, step in zip(lengths, starts, steps)]
    return lengths, torch.cat(documents)


class Batch:
    """Packed documents. All that a step needs is prepared on the CPU and copied without waiting."""

    def __init__(self, tokens, lengths, device):
        positions = torch.cat([torch.arange(n) for n in lengths])
        targets = torch.full_like(tokens, -100)  # cross_entropy's mark for a token that has none
        follows = positions[1:] > 0
        targets[:-1][follows] = tokens[1:][follows]
        self.lengths, self.count = lengths, int(follows.sum())
        self.tokens, self.positions, self.targets = (
            x.pin_memory().to(device, non_blocking=True) if device == "cuda" else x for x in (tokens, positions, targets))


    def shard(self, place):
        """Leaves the tokens of this rank."""
        self.tokens, self.targets = place.shard(self.tokens), place.shard(self.targets)
        self.positions = place.position_ids(self.tokens.device)


def mean_over_ranks(model, batch, place):
    """The same loss as sum_of_losses() / batch.count, of the tokens of all ranks. `place` goes where one process has its mask."""
    logits = model(batch.tokens, batch.positions, place)
    losses = functional.cross_entropy(logits.float(), batch.targets, reduction="none")
    return place.loss_mean(losses, batch.targets != -100)


def sum_of_losses(model, batch, mask):
    """Over all tokens that follow another one of their document. One mask serves all layers."""
    logits = model(batch.tokens, batch.positions, mask)
    return functional.cross_entropy(logits.float(), batch.targets, reduction="sum")


def gradients_of(model):
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return gradients


def check(model, tokens, lengths, device):
    def gradients_and_loss(tokens, lengths):
        loss = sum_of_losses(model, Batch(tokens, lengths, device), longspan.Mask.documents(lengths))
        loss.backward()
        return float(loss.detach())

    packed = gradients_and_loss(tokens, lengths)
    packed_gradients = gradients_of(model)
    separate = sum(gradients_and_loss(document, [len(document)]) for document in tokens.split(lengths))
    worst = max(float((a - b).norm() / b.norm()) for a, b in zip(packed_gradients, gradients_of(model)))
    print(f"packed {packed:.4f}, separate {separate:.4f}; gradients differ by {worst:.1e} of their size at most")
    close = 1e-4 if next(model.parameters()).dtype == torch.float32 else 3e-2
    assert abs(packed - separate) < close * separate and worst < close


def connect(ranks, strategy, device):
    """The ranks that torchrun has started."""
    if int(os.environ.get("WORLD_SIZE", 1)) != ranks:
        raise SystemExit(f"--cp {ranks} needs {ranks} processes: start them with torchrun --standalone --nproc-per-node {ranks}")
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    return ContextParallel(strategy=strategy)


def train(options, device, dtype, cp=None):
    """Yields the number of documents and the loss of each step. cp: the ContextParallel of ranks that share the batches."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    attention = longspan.attention if cp is None else cp.attention
    model = GPT(256, options.width, options.layers, *options.heads, attention).to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        lengths, tokens = draw_documents(options.tokens, generator)
        if options.check and step == 0 and cp is None:
            check(model, tokens, lengths, device)
        batch = Batch(tokens, lengths, device)
        mask = longspan.Mask.documents(lengths)
        if cp is None:
            loss = sum_of_losses(model, batch, mask) / batch.count
        else:
            place = cp.place(mask, options.heads, options.width // options.heads[0], dtype)
            batch.shard(place)
            loss = mean_over_ranks(model, batch, place)
        loss.backward()
        if cp is not None:
            cp.sum_gradients(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        yield len(lengths), loss.detach()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=1024, help="of a step")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, nargs=2, default=[4, 2], metavar=("Q", "KV"))
    parser.add_argument("--every", type=int, default=10, help="steps between two lines of output")
    parser.add_argument("--cp", type=int, default=1, help="ranks that share each batch")
    parser.add_argument("--strategy", default="balanced", help="of context parallelism: ulysses, ring-p2p, ...")
    return parser


def main():
    options = arguments().parse_args()
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    cp = connect(options.cp, options.strategy, device) if options.cp > 1 else None
    talks = cp is None or cp.rank == 0
    begin = time.perf_counter()
    for step, (documents, loss) in enumerate(train(options, device, dtype, cp)):
        if talks and (step % options.every == 0 or step == options.steps - 1):
            print(f"step {step:4}  {documents:2} documents  loss {float(loss):.5f}  "
                  f"{(step + 1) * options.tokens / (time.perf_counter() - begin):.0f} tokens/s")
    if cp is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
