"""Trains a small GPT on packed documents, on the CPU or a GPU.

    python examples/train_packed.py [--steps N] [--tokens T] [--check]

Documents of random lengths lie one after another in each step's batch of T tokens, without padding, and do not see each
other. --check also computes the loss and the gradients of the separate documents, and compares.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional

import longspan


class Block(nn.Module):
    def __init__(self, width, heads, heads_kv):
        super().__init__()
        self.heads, self.heads_kv, self.head_dim = heads, heads_kv, width // heads
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * heads_kv) * self.head_dim, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, positions, mask):  # x [tokens, width]
        qkv = self.qkv(self.before_attention(x)).unflatten(-1, (-1, self.head_dim))
        q, k, v = qkv.split([self.heads, self.heads_kv, self.heads_kv], 1)
        o = longspan.attention(rotate(q, positions), rotate(k, positions), v, mask)
        x = x + self.out(o.flatten(1))
        return x + self.mlp(self.before_mlp(x))


def rotate(x, positions):
    """Rotary position embedding: positions within the document."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * 10000 ** (-torch.arange(half, device=x.device) / half)
    cos, sin = angle.cos()[:, None].to(x.dtype), angle.sin()[:, None].to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class GPT(nn.Module):
    def __init__(self, vocabulary=256, width=256, layers=4, heads=4, heads_kv=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, heads_kv) for _ in range(layers))
        self.last = nn.Sequential(nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False))

    def forward(self, tokens, positions, mask):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, positions, mask)
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


def sum_of_losses(model, tokens, lengths):
    """Over all tokens that follow another one of their document. One mask serves all layers."""
    positions = torch.cat([torch.arange(n) for n in lengths]).to(tokens.device)
    logits = model(tokens, positions, longspan.Mask.documents(lengths))
    follows = positions[1:] > 0
    return functional.cross_entropy(logits[:-1][follows].float(), tokens[1:][follows], reduction="sum"), int(follows.sum())


def gradients_of(model):
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return gradients


def check(model, tokens, lengths):
    loss, _ = sum_of_losses(model, tokens, lengths)
    loss.backward()
    packed, separate = gradients_of(model), 0
    for document in tokens.split(lengths):
        if len(document) > 1:
            part, _ = sum_of_losses(model, document, [len(document)])
            part.backward()
            separate += float(part.detach())
    worst = max(float((a - b).norm() / b.norm()) for a, b in zip(packed, gradients_of(model)))
    loss = float(loss.detach())
    print(f"packed {loss:.4f}, separate {separate:.4f}; gradients differ by {worst:.1e} of their size at most")
    close = 1e-4 if next(model.parameters()).dtype == torch.float32 else 3e-2
    assert abs(loss - separate) < close * separate and worst < close


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=1024, help="of a step")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = GPT().to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step in range(options.steps):
        lengths, tokens = draw_documents(options.tokens, generator)
        tokens = tokens.to(device)
        if options.check and step == 0:
            check(model, tokens, lengths)
        total, count = sum_of_losses(model, tokens, lengths)
        loss = total / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 or step == options.steps - 1:
            print(f"step {step:4}  {len(lengths):2} documents  loss {float(loss.detach()):.3f}  "
                  f"{(step + 1) * options.tokens / (time.perf_counter() - begin):.0f} tokens/s")


if __name__ == "__main__":
    main()
