"""The demo of many machines: a learner and four actors on a Ray cluster of this machine. An actor is killed, then a node.

    python -m gipo.demo_cluster    (`make demo-cluster` sets up and builds first)

Ends with a table of what was lost, by the ledgers of the actors and the log of the learner, and a picture, in demo/cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gipo.progress import in_words
from gipo.ray import RunFailed, find_ray, run_on_cluster
from gipo.ray_nodes import programs
from gipo.runs import UserMistake, from_root

ACTORS, UPDATES = 4, 30_000
# The head notices a lost node after 3 s; Ray's own figures make 15.
QUICK = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3, "health_check_initial_delay_ms": 1000}
CAME_OR_WENT = re.compile(r"(?P<time>\S+ \S+) actor (?P<name>\S+) \(.*\) "
                          r"(came, incarnation (?P<incarnation>\d+)|went after (?P<steps>\d+) steps)")


def say(text: str) -> None:
    print(f"demo: {text}", file=sys.__stderr__, flush=True)


@dataclass
class Story:
    """What was done to the run, and when: for the picture."""

    begun: float = field(default_factory=time.time)
    returns: list[tuple[float, float]] = field(default_factory=list)  # seconds, mean return
    events: list[tuple[float, str]] = field(default_factory=list)
    update: int = 0
    over: bool = False
    shown: float = 0.0

    def see(self, figures: dict[str, Any]) -> None:
        self.update = figures["update"]
        if time.time() - self.shown > 5:
            self.shown = time.time()
            say(f"{100 * self.update / UPDATES:3.0f}%  {figures['env_steps']} env steps  return "
                f"{in_words(figures.get('return_mean'))}")
        if figures.get("return_mean") is not None:
            self.returns.append((time.time() - self.begun, figures["return_mean"]))

    def happened(self, text: str) -> None:
        self.events.append((time.time() - self.begun, text))
        say(text)

    def wait(self, condition: Callable[[], bool]) -> bool:
        """False where the run ended before."""
        while not condition():
            if self.over:
                return False
            time.sleep(0.1)
        return True


def do_harm(cluster: Any, victim: Any, nodes: set[str], story: Story) -> None:
    """Kills an actor at a fifth of the run, and a node once that actor is back."""
    ours = lambda: programs("actor", nodes)
    if not story.wait(lambda: story.update > UPDATES // 5 and len(ours()) == ACTORS):
        return
    pid = next(pid for pid, node in ours().items() if node != victim.node_id)
    os.kill(pid, signal.SIGKILL)
    story.happened(f"killed an actor (kill -9 {pid})")
    if not story.wait(lambda: pid not in ours() and len(ours()) == ACTORS):
        return
    story.happened("the actor is back")
    if not story.wait(lambda: story.update > 2 * UPDATES // 5):
        return
    there = sum(node == victim.node_id for node in ours().values())
    cluster.remove_node(victim, allow_graceful=False)
    story.happened(f"killed a node with {there} actors")
    if story.wait(lambda: victim.node_id not in ours().values() and len(ours()) == ACTORS):
        story.happened("its actors are back on another node")


@dataclass
class Life:
    """One incarnation of an actor: what it has noted down, and what the learner has seen of it."""

    name: str
    incarnation: int
    steps: int = 0  # that it has reported
    in_segments: int = 0
    received: int = 0  # steps in segments that the learner has
    acknowledged: int = 0  # of these, as far as the actor has heard
    last: bool = False  # it lived until the end of the run

    @property
    def lost(self) -> int:
        """Steps of segments that the learner said to have, and does not have."""
        return max(0, self.acknowledged - self.received)

    @property
    def unsent(self) -> int:
        """Steps of finished segments that had not reached the learner when the actor was killed."""
        return self.in_segments - max(self.received, self.acknowledged)

    @property
    def open(self) -> int:
        """Steps of segments that were not finished."""
        return self.steps - self.in_segments


def comings_and_goings(log: Path) -> list[re.Match[str]]:
    return [m for line in log.read_text().splitlines() if (m := CAME_OR_WENT.match(line))]


def steps_received(log: Path) -> dict[tuple[str, int], int]:
    """Of each actor's incarnation that has gone: the env steps that had reached the learner, by the learner's log."""
    found: dict[tuple[str, int], int] = {}
    incarnations: dict[str, int] = {}
    for m in comings_and_goings(log):
        if m["incarnation"]:
            incarnations[m["name"]] = int(m["incarnation"])
        else:
            key = m["name"], incarnations[m["name"]]
            found[key] = found.get(key, 0) + int(m["steps"])
    return found


def lives(ledgers: Path, log: Path) -> list[Life]:
    found = []
    seen = steps_received(log)
    for path in sorted(ledgers.glob("*.jsonl")):
        made: dict[int, dict[int, dict[str, Any]]] = {}
        acknowledged: dict[int, int] = {}
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # it was killed while it wrote
                continue
            number = record["incarnation"]
            if "made" in record:
                made.setdefault(number, {})[record["made"]] = record
            if "received" in record:
                acknowledged[number] = max(acknowledged.get(number, 0), record["received"])
        for number, reports in made.items():
            life = Life(path.stem, number, last=number == max(made))
            for sequence, record in sorted(reports.items()):
                steps = sum(segment[2] for segment in record["segments"])
                life.steps += record["steps"]
                life.in_segments += steps
                life.received += steps if life.steps <= seen.get((path.stem, number), 0) else 0
                life.acknowledged += steps if sequence < acknowledged.get(number, 0) else 0
            found.append(life)
    return found


def table(found: list[Life]) -> str:
    row = "{:<10}{:>6}{:>15}{:>12}{:>14}{:>12}{:>8}{:>8}{:>8}".format
    killed = [life for life in found if not life.last]
    unsent = sum(life.unsent for life in killed)
    return "\n".join([
        row("actor", "life", "ended", "env steps", "in segments", "received", "lost", "unsent", "open"),
        *(row(life.name, life.incarnation, "with the run" if life.last else "killed", life.steps, life.in_segments,
              life.received, life.lost, life.unsent, life.open) for life in found),
        f"of {sum(life.steps for life in found)} env steps, {sum(life.lost for life in found)} that the learner had received "
        f"were lost; with the {len(killed)} that were killed went {sum(life.open for life in killed)} in their open segments"
        + (f" and {unsent} in segments that they were about to send" if unsent else ""),
    ])


def draw(run: Path, story: Story, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from gipo.figures import BLUE, GREEN, STYLE, VERMILLION

    changes = [(datetime.strptime(m["time"], "%Y-%m-%d %H:%M:%S").timestamp() - story.begun, 1 if m["incarnation"] else -1)
               for m in comings_and_goings(run / "log.txt")]
    times, counts = [0.0], [0]
    for at, change in changes:
        times.append(max(at, 0.0))
        counts.append(counts[-1] + change)
    with plt.rc_context(STYLE):
        figure, (returns, actors) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True, layout="constrained",
                                                 height_ratios=[2, 1])
        returns.plot(*zip(*story.returns), color=BLUE)
        returns.set_title("CartPole: training return, mean of the last 100 episodes")
        returns.set_ylim(0, 520)
        actors.step(times, counts, where="post", color=GREEN)
        actors.set_title("actors connected to the learner")
        actors.set_ylim(0, ACTORS + 0.5)
        actors.set_xlabel("seconds")
        for index, (at, text) in enumerate(story.events):
            for ax in (returns, actors):
                ax.axvline(at, color=VERMILLION, linewidth=0.8, linestyle=":")
            returns.annotate(re.sub(r" \(.*\)", "", text), (at, 40 + 62 * (index % 4)), (4, 0), textcoords="offset points",
                             fontsize=8, color=VERMILLION)
        figure.savefig(path, dpi=150)


def run_demo(out: Path) -> None:
    ray = find_ray()
    from ray.cluster_utils import Cluster

    shutil.rmtree(out, ignore_errors=True)
    (out / "ledgers").mkdir(parents=True)
    begun = time.monotonic()
    say("starting a Ray cluster: a head and two nodes")
    cluster = Cluster(initialize_head=True, head_node_args={
        "num_cpus": 1, "resources": {"head": 1}, "include_dashboard": False, "_system_config": QUICK})
    nodes = [cluster.add_node(num_cpus=ACTORS) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    say(f"ready after {time.monotonic() - begun:.0f} s; training CartPole with {ACTORS} actors")
    words = ["--set", f"learner.updates={UPDATES}", "--set", f"run.dir={out.absolute()}", "--set", "run.name=run",
             "--set", "log.every_updates=100"]
    story = Story()
    harm = threading.Thread(target=do_harm, daemon=True, args=(cluster, nodes[1], {node.node_id for node in nodes}, story))
    # Ray has much to say of a lost node.
    with (out / "ray.txt").open("w") as file, contextlib.redirect_stderr(file), contextlib.redirect_stdout(file):
        try:
            harm.start()
            run = run_on_cluster("classic/stale", words, ACTORS, {}, {"resources": {"head": 0.1}}, [], story.see, False,
                                 out / "ledgers")
            story.over = True
            harm.join()
        finally:
            ray.shutdown()
            cluster.shutdown()
    result = json.loads((run / "summary.json").read_text())
    draw(run, story, out / "cluster.png")
    print(f"{table(lives(out / 'ledgers', run / 'log.txt'))}\n"
          f"CartPole: greedy evaluation {result['eval_return']['mean']:.0f} of 500 after {result['env_steps']} env steps, "
          f"{time.monotonic() - begun:.0f} s in all; picture: {from_root(out / 'cluster.png')}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gipo.demo_cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo/cluster"), help="folder for it, which is emptied first")
    out = parser.parse_args().out
    try:
        run_demo(out)
    except UserMistake as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except RunFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
