"""LIBERO as our workers make it against the bare package: the same initial states and actions, what differs.

`scripts/setup.sh --libero` installs it; GIPO_LIBERO_DATA names the folder with its assets. As a program, in its own
environment, it compares all 40 tasks and prints the table of docs/robot-tasks.md:

    .venv-libero/bin/python tests/oracle/test_libero.py [SUITE/N[:published] ...]
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
try:
    import pytest
except ImportError:  # as a program, in LIBERO's own environment
    pytest = None

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-libero" / "bin" / "python"
STEPS, STATE = 50, 7  # the initial state that both begin with
TASKS = [f"{suite}/{n}" for suite in ("libero_spatial", "libero_object", "libero_goal", "libero_10") for n in range(10)]


def bare(tasks, name):
    """The package's own environment after the ten steps of settling, as its authors begin an episode."""
    suite, _, number = name.partition("/")
    root = Path(tasks.libero_package().__file__).parent
    task = tasks.libero_tasks()[suite][int(number)]
    from libero.libero.envs import OffScreenRenderEnv

    env = OffScreenRenderEnv(bddl_file_name=str(root / "bddl_files" / suite / f"{task}.bddl"), camera_heights=128,
                             camera_widths=128)  # fmt: skip
    env.seed(0)
    env.reset()
    env.set_init_state(tasks.read_states(root / "init_files" / suite / f"{task}.pruned_init")[STATE])
    for _ in range(10):
        raw, _, _, _ = env.step([0, 0, 0, 0, 0, 0, -1])
    return env, raw


def compare(tasks, name, drawing):
    """Largest differences over the steps; the milliseconds of a step of ours with two images, and of one without. Images are
    compared where both draw as published; else the package draws none, and ours only now and then."""
    published = drawing == "published"
    ours = tasks.libero(name, drawing=drawing, init_state=STATE)
    ours.env.hard_reset = True  # as the package does; without it states differ by 1e-14
    seen, _ = ours.reset(seed=1)
    if not published:
        tasks.draw_plainly(ours.env)
    theirs, raw = bare(tasks, name)
    random = np.random.default_rng(1)
    found = {"task": name, "drawing": drawing, "state": 0.0, "image": 0 if published else None, "reward": 0.0}
    times = {True: [], False: []}

    def note(seen, reward=0.0):
        states = theirs.env.sim.get_state().flatten() - ours.env.sim.get_state().flatten()
        found["state"] = max(found["state"], float(np.abs(states).max()))
        found["reward"] = max(found["reward"], abs(reward))
        for key, camera in ours.cameras.items() if published else ():
            difference = np.abs(seen[key].astype(int) - raw[camera][::-1, ::-1].astype(int))
            found["image"] = max(found["image"], int(difference.max()))

    note(seen)
    if not published:
        for camera in ours.cameras.values():
            theirs.env._observables[camera].set_enabled(False)
    for step in range(STEPS):
        action = random.uniform(-1, 1, 7)
        look = published or step % 5 == 4
        theirs.env.sim._render_context_offscreen.gl_ctx.make_current()
        raw, reward, _, _ = theirs.step(action)
        begin = time.process_time()
        seen, own_reward, _ = ours.move(action, draw=look)
        times[look].append(1e3 * (time.process_time() - begin))
        note(seen, reward - own_reward)
    found |= {key: float(np.median(times[look])) for key, look in (("drawn", True), ("plain", False)) if times[look]}
    ours.close()
    theirs.close()
    return found


def main():
    sys.path.insert(0, str(ROOT / "python" / "gipo"))
    import robot_tasks

    for argument in sys.argv[1:] or TASKS:
        name, _, drawing = argument.partition(":")
        print(json.dumps(compare(robot_tasks, name, drawing or "fast")), flush=True)


if pytest:

    @pytest.mark.slow
    @pytest.mark.skipif(not PYTHON.exists() or "GIPO_LIBERO_DATA" not in os.environ,
                        reason="no LIBERO (scripts/setup.sh --libero), or GIPO_LIBERO_DATA does not name its assets")  # fmt: skip
    def test_tasks_are_the_package_s_own():
        asked = ["libero_spatial/0:published", "libero_object/4", "libero_goal/7", "libero_10/2"]
        done = subprocess.run([PYTHON, __file__, *asked], capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(lines) == len(asked)
        for line in lines:
            assert line["state"] == 0 and line["reward"] == 0 and not line["image"], line


if __name__ == "__main__":
    main()
