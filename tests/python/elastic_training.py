"""Started by torchrun for test_distributed_failure.py: trains from a checkpoint. Rank 1 dies before step 3 of the first attempt.

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc-per-node 2 --max-restarts 1 elastic_training.py FOLDER
"""

import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist

from longspan import Mask
from longspan.distributed import ContextParallel

STEPS, DIES_AT, TOKENS = 6, 3, 64


def mask_of(step):
    return Mask.documents([20 + step, TOKENS - 20 - step])


def first_weight():
    return torch.randn(16, 64, generator=torch.Generator().manual_seed(0))


def losses_of(step, weight, attend, shard=lambda x: x):
    """A loss for each token."""
    x = shard(torch.randn(TOKENS, 16, generator=torch.Generator().manual_seed(step)))
    q, k, v = (x @ weight).unflatten(1, (8, 8)).split([4, 2, 2], 1)
    return (attend(q, k, v) - 1).flatten(1).square().mean(1)


def descend(weight):
    with torch.no_grad():
        weight -= 0.2 * weight.grad
    weight.grad = None


def main():
    folder = pathlib.Path(sys.argv[1])
    attempt, checkpoint = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), folder / "checkpoint"
    (folder / f"process-{os.getpid()}").touch()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun would end a rank before it says what it has lost
    dist.init_process_group("gloo")
    cp = ContextParallel(strategy="ring-p2p", limit_s=60)
    first, weight = torch.load(checkpoint) if checkpoint.exists() else (0, first_weight())
    weight.requires_grad_()
    for step in range(first, STEPS):
        if (attempt, step, cp.rank) == (0, DIES_AT, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        place = cp.place(mask_of(step), (4, 2), 8, torch.float32)
        loss = place.loss_mean(losses_of(step, weight, lambda q, k, v: cp.attention(q, k, v, place), place.shard))
        loss.backward()
        cp.sum_gradients([weight])
        descend(weight)
        if cp.rank == 0:
            torch.save((step + 1, weight.detach()), folder / "new")
            (folder / "new").rename(checkpoint)
            print(f"attempt {attempt} step {step} loss {float(loss.detach()):.6f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
