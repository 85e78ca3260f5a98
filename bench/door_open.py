"""Meta-World door-open end to end: the authors' network and batch, simulating and learning at once on two cores.

    make build && scripts/setup.sh --metaworld
    .venv/bin/python bench/door_open.py [--runs 5] [--updates 2000] [--envs 128]

Rates are those of a run after its first quarter. The dial asks for 27.6 env steps per update, the proportion of what is
aimed at: four times the env steps per second of the authors' script, 785, and twice its updates, 57, which were measured
on two cores of another machine.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
import gipo  # noqa: E402

AUTHORS = {"env steps/s": 785, "updates/s": 57}


def rates(updates: int, envs: int, seed: int) -> dict[str, float]:
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        gipo.train(
            ROOT / "configs/metaworld/authors.toml", seed=seed, name="door", progress=False,
            callback=lambda f: seen.append((f["seconds"], f["env_steps"], f["update"])), run__dir=folder,
            env__count=envs, env__workers=1, staleness__regime="custom", staleness__actors=1, staleness__window=1000,
            staleness__env_steps_per_update=27.6, learner__updates=updates, eval__episodes=1,
            log__every_updates=20, log__tensorboard=False, checkpoint__every_updates=0,
        )  # fmt: skip
    begin, end = seen[len(seen) // 4], seen[-1]
    seconds, steps, done = (b - a for a, b in zip(begin, end, strict=True))
    return {"env steps/s": steps / seconds, "updates/s": done / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--envs", type=int, default=128)
    args = parser.parse_args()
    runs = [rates(args.updates, args.envs, seed) for seed in range(1, args.runs + 1)]
    for name, theirs in AUTHORS.items():
        figures = [run[name] for run in runs]
        middle = statistics.median(figures)
        print(f"{name}: {', '.join(f'{v:.0f}' for v in figures)}; median {middle:.0f}, {middle / theirs:.2f} times theirs")


if __name__ == "__main__":
    main()
