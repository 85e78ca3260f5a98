"""An update of two Nature CNNs from 256 images of 4 x 84 x 84: gipo beside PyTorch, eager and compiled, in one run.

    .venv/bin/python bench/images.py build/torch/gipo            # on the CPU: two threads each
    .venv/bin/python bench/images.py build/torch/gipo cuda       # on the first CUDA device

Both do the same work: forward and gradients of a policy and of a critic of their own, a surrogate with clipped ratios, an
entropy bonus, a squared value error, gradients clipped by their norm, AdamW.
"""

import json
import subprocess
import sys
import time

import torch
from torch import nn

BATCH, ACTIONS = 256, 6


def network(outputs):
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, outputs),
    )  # fmt: skip


def updater(device, compiled, bf16):
    policy, critic = network(ACTIONS).to(device), network(1).to(device)
    optimizers = [torch.optim.AdamW(part.parameters(), 3e-4, fused=device != "cpu") for part in (policy, critic)]
    images = torch.randint(0, 256, (BATCH, 4, 84, 84), dtype=torch.uint8)
    host = [images, torch.randint(0, ACTIONS, (BATCH,)), torch.randn(BATCH) - 1.8, torch.randn(BATCH), torch.randn(BATCH)]
    if device != "cpu":
        host = [part.pin_memory() for part in host]

    def losses(images, actions, behaviour, advantage, target):
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            x = images.float() / 255
            log_p = torch.log_softmax(policy(x).float(), -1)
            value = critic(x).float().squeeze(1)
        ratio = (log_p.gather(1, actions[:, None]).squeeze(1) - behaviour).exp()
        surrogate = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(log_p.exp() * log_p).sum(-1).mean()
        return surrogate - 0.005 * entropy, 0.5 * (value - target).square().mean()

    run = torch.compile(losses) if compiled else losses

    def update():
        batch = [part.to(device, non_blocking=True) for part in host]
        for optimizer in optimizers:
            optimizer.zero_grad()
        sum(run(*batch)).backward()
        for part, optimizer in zip((policy, critic), optimizers):
            nn.utils.clip_grad_norm_(part.parameters(), 0.5)
            optimizer.step()

    return update


def best(update, device):
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    together = 20 if device != "cpu" else 1  # on a device nobody waits after each
    for _ in range(5):
        update()
    times = []
    for _ in range(8):
        wait()
        begin = time.perf_counter()
        for _ in range(together):
            update()
        wait()
        times.append((time.perf_counter() - begin) / together)
    return min(times)


def main():
    binary, device = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("high")  # TF32, as gipo
    torch.backends.cudnn.benchmark = True
    figures = {}
    for bf16 in (False, True) if device != "cpu" else (False,):
        for compiled in (False, True):
            name = f"PyTorch {'compiled' if compiled else 'eager'}{', bf16' if bf16 else ''}"
            try:
                figures[name] = best(updater(device, compiled, bf16), device)
            except Exception as error:  # a compiler that is not there
                print(f"{name}: not measured: {type(error).__name__}: {str(error).splitlines()[0]:.100}")
    rows = json.loads(subprocess.run([binary, "bench", "images", "--json"], capture_output=True, check=True).stdout)
    for row in rows:
        if row["name"].split(", ")[1].startswith(device):
            figures[f"gipo, {row['name'].split(', ')[2]}"] = 1 / row["value"]
    eager = figures["PyTorch eager"]
    for name, seconds in figures.items():
        print(f"{name:26} {1e3 * seconds:8.3f} ms   {eager / seconds:5.2f} x eager")


main()
