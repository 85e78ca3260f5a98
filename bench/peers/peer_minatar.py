"""Actor-critic with eligibility traces on MinAtar, as MinAtar's paper (arXiv:1903.03176) has it: AC(lambda).

    python3 bench/peers/peer_minatar.py GAME SEED FRAMES

prints a line every 50,000 frames: {"game", "seed", "frames", "return", "seconds"}, the mean return of the last 100 episodes.
One frame at a time, no replay: 16 filters of 3 x 3 with SiLU, 128 units with SiLU's derivative, a softmax and a value. Step
size 2^-8, lambda 0.8, gamma 0.99, entropy 0.01, the published ones. In NumPy, since one frame at a time is what PyTorch is
slow at. Needs the packages numpy and minatar.
"""

import json
import sys
import time

import numpy as np
from minatar import Environment

STEP, LAMBDA, GAMMA, ENTROPY, LEAST = 2.0**-8, 0.8, 0.99, 0.01, 1e-4
FILTERS, HIDDEN, EVERY = 16, 128, 50_000


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Network:
    """Policy and value of one state, and the gradient of any function of both."""

    def __init__(self, channels, actions, random):
        def uniform(*shape, inputs):
            bound = 1 / np.sqrt(inputs)
            return random.uniform(-bound, bound, shape).astype(np.float32)

        inner = FILTERS * 64
        sizes = {"conv": (FILTERS, 9 * channels), "hidden": (HIDDEN, inner), "policy": (actions, HIDDEN), "value": (1, HIDDEN)}
        self.parameters = []
        for rows, inputs in sizes.values():
            self.parameters += [uniform(rows, inputs, inputs=inputs), uniform(rows, inputs=inputs)]
        self.outer = np.empty((HIDDEN, inner), np.float32)  # large arrays are made once

    def see(self, state):
        w1, b1, w2, b2, wp, bp, wv, bv = self.parameters
        # [8, 8, channels, 3, 3]: what each filter sees at each place
        windows = np.lib.stride_tricks.sliding_window_view(state, (3, 3), axis=(0, 1))
        self.patches = windows.reshape(64, -1).astype(np.float32)
        self.z1 = self.patches @ w1.T + b1
        self.s1 = sigmoid(self.z1)
        self.h1 = (self.z1 * self.s1).ravel()
        self.z2 = w2 @ self.h1 + b2
        self.s2 = sigmoid(self.z2)
        self.h2 = self.s2 * (1 + self.z2 * (1 - self.s2))
        logits = wp @ self.h2 + bp
        e = np.exp(logits - logits.max())
        self.pi, self.v = e / e.sum(), float((wv @ self.h2 + bv)[0])

    def gradient(self, d_pi, d_v):
        """Of a function of pi and v with these derivatives, at the state that was seen last."""
        _, _, w2, _, wp, _, wv, _ = self.parameters
        d_logits = (self.pi * (d_pi - d_pi @ self.pi)).astype(np.float32)
        d_value = np.array([d_v], np.float32)
        d_h2 = wp.T @ d_logits + wv[0] * d_value
        slope2 = self.s2 * (1 - self.s2) * (2 + self.z2 * (1 - 2 * self.s2))
        d_z2 = (d_h2 * slope2).astype(np.float32)
        d_h1 = (w2.T @ d_z2).reshape(64, FILTERS)
        d_z1 = d_h1 * (self.s1 * (1 + self.z1 * (1 - self.s1)))
        np.multiply.outer(d_z2, self.h1, out=self.outer)
        return [d_z1.T @ self.patches, d_z1.sum(0), self.outer, d_z2,
                np.outer(d_logits, self.h2), d_logits, np.outer(d_value, self.h2), d_value]  # fmt: skip


def learn(game, seed, frames, tell):
    random = np.random.default_rng(seed)
    environment = Environment(game)
    environment.seed(seed)
    now, last = (Network(environment.state_shape()[2], environment.num_actions(), random) for _ in range(2))
    last.parameters = now.parameters
    traces, scratch = ([np.zeros_like(p) for p in now.parameters] for _ in range(2))
    returns, frame = [], 0

    def train(action, before, reward, terminal):
        pi = now.pi
        d_pi = np.zeros_like(pi)
        d_pi[action] = 0.5 / (pi[action] + LEAST)
        if before is not None:
            last.see(before)
            delta = (0 if terminal else GAMMA * now.v) + reward - last.v
            # The weights change last: both gradients are those of before.
            of_entropy = now.gradient(STEP * ENTROPY * -(np.log(pi + LEAST) + pi / (pi + LEAST)), 0.0)
            for step, trace, g in zip(scratch, traces, of_entropy):
                np.multiply(trace, np.float32(STEP * delta), out=step)
                step += g
        for trace, g in zip(traces, now.gradient(d_pi, 1.0)):
            trace *= np.float32(LAMBDA * GAMMA)
            trace += g
        if before is not None:
            for p, step in zip(now.parameters, scratch):
                p += step

    while frame < frames:
        environment.reset()
        state, before, reward, terminal, total = environment.state(), None, 0.0, False, 0.0
        while not terminal and frame < frames:
            now.see(state)
            action = min(int(np.searchsorted(np.cumsum(now.pi), random.random())), len(now.pi) - 1)
            gained, over = environment.act(action)
            train(action, before, reward, terminal)
            before, state, reward, terminal = state, environment.state(), gained, over
            total += gained
            frame += 1
            if frame % EVERY == 0:
                tell(frame, float(np.mean(returns[-100:])) if returns else None)
        now.see(state)
        train(action, before, reward, terminal)
        for trace in traces:
            trace[:] = 0
        if terminal:
            returns.append(total)


def main():
    game, seed, frames = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    begin = time.perf_counter()

    def tell(frame, mean):
        seconds = round(time.perf_counter() - begin, 1)
        print(json.dumps({"game": game, "seed": seed, "frames": frame, "return": mean, "seconds": seconds}), flush=True)

    learn(game, seed, frames, tell)


if __name__ == "__main__":
    main()
