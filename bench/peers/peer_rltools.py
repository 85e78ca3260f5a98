"""RLtools' PPO on Pendulum, from the C++ headers in its package. Prints one JSON object.

    peer_rltools.py SEED     seconds of training (peer_rltools.cc says of what), greedy return after it

Compiled once for a working folder, with the flags that the package itself compiles with, and with OpenBLAS.
"""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path("peer_rltools").resolve()
FLAGS = ["-std=c++17", "-O3", "-march=native", "-ffast-math", "-w"]
OPENBLAS = ["-DRL_TOOLS_BACKEND_ENABLE_OPENBLAS", "-DRL_TOOLS_DISABLE_UNALIGNED_MEMORY_ALLOCATIONS"]


def compile_program():
    spec = importlib.util.find_spec("rltools")
    if spec is None:
        sys.exit("No module named 'rltools'")
    include = Path(spec.submodule_search_locations[0]) / "external" / "rl_tools" / "include"
    source = Path(__file__).with_suffix(".cc")
    command = ["c++", *FLAGS, *OPENBLAS, f"-I{include}", source, "-o", PROGRAM, "-lopenblas"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line or "cannot find" in line]
        sys.exit(f"{source.name} does not compile: {errors[0] if errors else done.stderr.strip()}")


def main():
    if not PROGRAM.exists():
        compile_program()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    output = subprocess.run([PROGRAM, sys.argv[1]], env=environment, check=True, capture_output=True, text=True).stdout
    seconds, mean_return = map(float, output.split())
    print(json.dumps({
        "value": seconds, "return": mean_return, "version": importlib.metadata.version("rltools"),
        "settings": "OpenBLAS, ReLU",
    }))


if __name__ == "__main__":
    main()
