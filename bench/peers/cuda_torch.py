"""What `gipo bench cuda` measures, in PyTorch on the same card: eager, in a CUDA graph, and compiled in one.

    python3 bench/peers/cuda_torch.py [GIPO]

GIPO: the program, build/cuda/gipo unless given; its figures are printed beside PyTorch's. PyTorch's update has no V-trace:
its targets are given, which is less work than gipo does.
"""

import json
import statistics
import subprocess
import sys

import torch
from torch import nn

CASES = (("64x64", 8, (64, 64), (2,), 256), ("256x256", 8, (256, 256), (2,), 4096),
         ("39-512-512-1024", 39, (512, 512), (256, 256, 256, 256), 512))
SAMPLES = 64 << 20
ROWS = (1, 256, 16384)


def mlp(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.Tanh()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs)).cuda()


def median_us(call, times: int = 100, rounds: int = 21) -> float:
    """Microseconds of one call by the card's clock."""
    for _ in range(3):
        call()
    found = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            call()
        end.record()
        torch.cuda.synchronize()
        found.append(1000 * begin.elapsed_time(end) / times)
    return statistics.median(found)


def in_graph(call):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def update_of(inputs: int, hidden: tuple[int, ...], choices: tuple[int, ...], batch: int, compiled: bool):
    """One update: forward, GIPO's multiplier, backward, clip, AdamW, for a policy and a critic."""
    policy, critic = mlp(inputs, hidden, sum(choices)), mlp(inputs, hidden, 1)
    observation = torch.randn(batch, inputs, device="cuda")
    action = torch.stack([torch.randint(n, (batch,), device="cuda") for n in choices], 1)
    behaviour = -0.7 + 0.3 * torch.randn(batch, len(choices), device="cuda")
    advantage, target = torch.randn(batch, device="cuda"), torch.randn(batch, device="cuda")

    def loss_of():
        heads = policy(observation).split(choices, 1)
        log_p = [head.log_softmax(1) for head in heads]
        chosen = torch.stack([p.gather(1, action[:, i : i + 1])[:, 0] for i, p in enumerate(log_p)], 1)
        entropy = sum(-(p.exp() * p).sum(1) for p in log_p)
        ratio = (chosen - behaviour).sum(1)
        weight = torch.exp(-ratio.detach().clamp(-20, 20) ** 2 / 0.5)
        normal = (advantage - advantage.mean()) / advantage.std()
        surrogate = -(weight * torch.exp(ratio.clamp(-20, 20)) * normal).mean()
        value = (critic(observation)[:, 0] - target) ** 2
        return surrogate - 0.005 * entropy.mean() + 0.5 * value.mean()

    computed = torch.compile(loss_of) if compiled else loss_of
    optimizer = torch.optim.AdamW(
        [{"params": policy.parameters(), "lr": 3e-4}, {"params": critic.parameters(), "lr": 1e-3}],
        eps=1e-5, weight_decay=0.0, fused=True, capturable=True)

    def update():
        optimizer.zero_grad(set_to_none=True)
        computed().backward()
        for network in (policy, critic):
            nn.utils.clip_grad_norm_(network.parameters(), 0.5, foreach=True)
        optimizer.step()

    return update


def product_tflops(m: int, n: int, k: int) -> float:
    """The best product of that size by cuBLAS, in TF32."""
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    out = torch.empty(m, n, device="cuda")
    return 2e-6 * m * n * k / median_us(in_graph(lambda: torch.mm(a, b, out=out)))


def surrogate_us(compiled: bool) -> float:
    log_ratio, advantage = torch.randn(SAMPLES, device="cuda"), torch.randn(SAMPLES, device="cuda")

    def multiplier(x, a):
        x = x.clamp(-20, 20)
        sigma = torch.where(a < 0, 0.25, 0.5)  # or nothing would read the advantages
        return torch.exp(x - x * x / (2 * sigma * sigma))

    call = torch.compile(multiplier) if compiled else multiplier
    return median_us(lambda: call(log_ratio, advantage), 5)


def measured_by(program: str) -> dict[str, float]:
    text = subprocess.run([program, "bench", "cuda", "--json"], capture_output=True, text=True, check=True).stdout
    return {row["name"]: row["value"] for row in json.loads(text)}


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    ours = measured_by(sys.argv[1] if len(sys.argv) > 1 else "build/cuda/gipo")
    for name, us in ours.items():
        print(f"{name:<56}{us:10.1f} us", flush=True)
    for network, inputs, hidden, choices, batch in CASES:
        name = f"torch update {network} batch {batch}"
        print(f"{name + ' eager':<56}{median_us(update_of(inputs, hidden, choices, batch, False), 20):10.1f} us", flush=True)
        graph = in_graph(update_of(inputs, hidden, choices, batch, False))
        print(f"{name + ' graph':<56}{median_us(graph):10.1f} us", flush=True)
        graph = in_graph(update_of(inputs, hidden, choices, batch, True))
        print(f"{name + ' compiled, graph':<56}{median_us(graph):10.1f} us", flush=True)
    for m, n, k in ((4096, 256, 256), (512, 1024, 512), (256, 64, 64)):
        print(f"{f'cuBLAS product {m} x {n} x {k}, tf32':<56}{product_tflops(m, n, k):10.1f} TFLOP/s", flush=True)
    for compiled in (False, True):
        name = f"torch gipo over 64M samples {'compiled' if compiled else 'eager'}"
        print(f"{name:<56}{surrogate_us(compiled):10.1f} us", flush=True)
    network = mlp(8, (64, 64), 2)
    for rows in ROWS:
        observation = torch.randn(rows, 8, device="cuda")
        with torch.no_grad():
            graph = in_graph(lambda: network(observation))
        print(f"{f'torch inference 64x64 rows {rows} graph':<56}{median_us(graph):10.1f} us", flush=True)


if __name__ == "__main__":
    main()
