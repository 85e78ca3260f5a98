#!/usr/bin/env bash
# Cross-compiles for aarch64 into build/aarch64 and runs the unit tests in an emulator, about 15 minutes. Installs the
# compiler, the emulator and the libraries for that processor where they are missing. Arguments go to the tests:
#
#   tests/aarch64.sh --gtest_filter='Dense*'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ "$(uname -m)" == aarch64 ]]; then
  echo "aarch64: this machine is one; make test builds and tests for it" >&2
  exit 2
fi

missing=()
for package in g++-aarch64-linux-gnu qemu-user libfmt-dev:arm64 libgtest-dev:arm64 libtomlplusplus-dev:arm64; do
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || missing+=("$package")
done
if ((${#missing[@]} > 0)); then
  as_root=()
  ((EUID == 0)) || as_root=(sudo)
  "${as_root[@]}" dpkg --add-architecture arm64
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

build=build/aarch64
mujoco=$(grep '^mujoco==' scripts/requirements.txt)
if ! compgen -G "$build/wheel/mujoco/libmujoco.so.*" >/dev/null; then
  .venv/bin/python -m pip download -q --no-deps --only-binary=:all: --platform manylinux2014_aarch64 \
    -d "$build/wheel" "$mujoco"
  .venv/bin/python -m zipfile -e "$build"/wheel/*.whl "$build/wheel"
fi

cmake -S . -B "$build" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DGIPO_PYTHON=OFF \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
  -DCMAKE_LIBRARY_ARCHITECTURE=aarch64-linux-gnu -DCMAKE_PREFIX_PATH=/usr/lib/aarch64-linux-gnu >/dev/null
cmake --build "$build" -j "$(nproc)" --target gipo gipo_tests
GIPO_PYTHON=$PWD/.venv/bin/python GIPO_MUJOCO=$PWD/$build/wheel/mujoco \
  qemu-aarch64 -L / "$build/tests/gipo_tests" --gtest_filter='-Slow*' "$@"
