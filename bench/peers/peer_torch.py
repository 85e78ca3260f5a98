"""PyTorch eager on one thread: one PPO update, or the policy's forward pass. Prints one JSON object.

    peer_torch.py learner|module|calls ROWS SECONDS

`module` is the policy as it is written in PyTorch, `calls` the same without modules: bare functions, in place. Every
setting below that could be the faster one is timed, and the fastest counts.
"""

import contextlib
import itertools
import json
import statistics
import sys
import time

import torch
from torch import nn

OBSERVATION, WIDTH, ACTIONS = 8, 64, 2
EPSILON, ENTROPY, MAX_NORM = 0.2, 0.005, 0.5


def network(outputs):
    layers = [nn.Linear(OBSERVATION, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, outputs)]
    return nn.Sequential(*layers)


def median_seconds(call, seconds):
    """Median over blocks of the time of one call: an interruption falls on one block and is left out."""
    block = 20
    for _ in range(block):
        call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        for _ in range(block):
            call()
        times.append((time.perf_counter() - begin) / block)
    return statistics.median(times)


def learner(rows, optimizer, foreach_clip):
    """Forward, PPO loss, backward, norm clip of each network, AdamW. Advantages and targets are given, which spares
    PyTorch work that gipo does."""
    actor, critic = network(ACTIONS), network(1)
    # The networks share nothing: one backward pass and one optimizer do for both what two would, in less time.
    groups = [{"params": list(actor.parameters()), "lr": 3e-4}, {"params": list(critic.parameters()), "lr": 1e-3}]
    adam = torch.optim.AdamW(groups, eps=1e-5, weight_decay=0.0, **{optimizer: True})
    observation = torch.randn(rows, OBSERVATION)
    action = torch.randint(ACTIONS, (rows, 1))
    old_log_prob = torch.full((rows,), -0.7)
    advantage, target = torch.randn(rows), torch.randn(rows)

    def update():
        log_probs = torch.log_softmax(actor(observation), 1)
        ratio = torch.exp(log_probs.gather(1, action).squeeze(1) - old_log_prob)
        clipped = ratio.clamp(1 - EPSILON, 1 + EPSILON)
        policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        entropy = -(log_probs.exp() * log_probs).sum(1).mean()
        value_loss = 0.5 * (critic(observation).squeeze(1) - target).square().mean()
        adam.zero_grad(set_to_none=True)
        (policy_loss - ENTROPY * entropy + value_loss).backward()
        for group in groups:
            nn.utils.clip_grad_norm_(group["params"], MAX_NORM, foreach=foreach_clip)
        adam.step()

    return update


def module(rows):
    """The policy's outputs for `rows` observations that are in a tensor already."""
    actor, observation = network(ACTIONS), torch.randn(rows, OBSERVATION)
    return lambda: actor(observation)


def calls(rows):
    (w0, b0), (w1, b1), (w2, b2) = [(layer.weight.t(), layer.bias) for layer in network(ACTIONS)[::2]]
    observation, addmm = torch.randn(rows, OBSERVATION), torch.addmm
    return lambda: addmm(b2, addmm(b1, addmm(b0, observation, w0).tanh_(), w1).tanh_(), w2)


def main():
    what, rows, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if what == "learner":
        variants = {
            f"{adam} AdamW, {'foreach' if clip else 'plain'} clip": (contextlib.nullcontext, learner(rows, adam, clip))
            for adam, clip in itertools.product(("fused", "foreach"), (True, False))
        }
    else:
        name, call = ("nn.Sequential", module(rows)) if what == "module" else ("bare torch.addmm", calls(rows))
        guards = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
        variants = {f"{name}, {guard}": (guards[guard], call) for guard in guards}
    times = {}
    for name, (guard, call) in variants.items():
        with guard():
            times[name] = median_seconds(call, seconds / len(variants))
    best = min(times, key=times.get)
    value = 1 / times[best] if what == "learner" else 1e6 * times[best]
    print(json.dumps({"value": value, "version": torch.__version__, "settings": best}))


if __name__ == "__main__":
    main()
