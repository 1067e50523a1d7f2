"""Trains a small GPT on packed documents, on the CPU or a GPU.

    python examples/train_packed.py [--steps N] [--tokens T] [--check] [--width W] [--layers L] [--heads Q KV]

Documents of random lengths lie one after another in each step's batch of T tokens, without padding, and do not see each
other. --check also computes the loss and the gradients of the separate documents, and compares. On a GPU, training waits for it
only to print.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional

import longspan


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


def draw_documents(count, generator):
    """Lengths that fill `count` tokens, and the text: runs that count up, so there is something to learn."""
    lengths = []
    while (left := count - sum(lengths)) > 0:
        lengths.append(min(left, int(torch.randint(8, max(9, count // 3), (), generator=generator))))
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=1024, help="of a step")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, nargs=2, default=[4, 2], metavar=("Q", "KV"))
    options = parser.parse_args()
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = GPT(256, options.width, options.layers, *options.heads).to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step in range(options.steps):
        lengths, tokens = draw_documents(options.tokens, generator)
        if options.check and step == 0:
            check(model, tokens, lengths, device)
        batch = Batch(tokens, lengths, device)
        loss = sum_of_losses(model, batch, longspan.Mask.documents(lengths)) / batch.count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 or step == options.steps - 1:
            print(f"step {step:4}  {len(lengths):2} documents  loss {float(loss.detach()):.3f}  "
                  f"{(step + 1) * options.tokens / (time.perf_counter() - begin):.0f} tokens/s")


if __name__ == "__main__":
    main()
