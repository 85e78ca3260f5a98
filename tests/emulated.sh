#!/usr/bin/env bash
# Cross-compiles for the other of the two processors, aarch64 or x86-64, into build/<its name> and runs the unit tests in
# an emulator, about 15 minutes. Installs the compiler, the emulator and the libraries for that processor where they are
# missing. Arguments go to the tests:
#
#   tests/emulated.sh --gtest_filter='Dense*'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "$(uname -m)" in
  x86_64) processor=aarch64 triple=aarch64-linux-gnu compiler=g++-aarch64-linux-gnu debian=arm64 ;;
  aarch64) processor=x86_64 triple=x86_64-linux-gnu compiler=g++-x86-64-linux-gnu debian=amd64 ;;
  *)
    echo "emulated: this machine is $(uname -m); known: x86_64, aarch64" >&2
    exit 2
    ;;
esac

missing=()
for package in "$compiler" qemu-user {libfmt,libgtest,libtomlplusplus}-dev:"$debian"; do
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || missing+=("$package")
done
if ((${#missing[@]} > 0)); then
  as_root=()
  ((EUID == 0)) || as_root=(sudo)
  "${as_root[@]}" dpkg --add-architecture "$debian"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

build=build/$processor
mujoco=$(grep '^mujoco==' scripts/requirements.txt)
if ! compgen -G "$build/wheel/mujoco/libmujoco.so.*" >/dev/null; then
  .venv/bin/python -m pip download -q --no-deps --only-binary=:all: --platform "manylinux2014_$processor" \
    -d "$build/wheel" "$mujoco"
  .venv/bin/python -m zipfile -e "$build"/wheel/*.whl "$build/wheel"
fi

cmake -S . -B "$build" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DGIPO_PYTHON=OFF \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$processor" -DCMAKE_CXX_COMPILER="$triple-g++" \
  -DCMAKE_LIBRARY_ARCHITECTURE="$triple" -DCMAKE_PREFIX_PATH="/usr/lib/$triple" >/dev/null
cmake --build "$build" -j "$(nproc)" --target gipo gipo_tests
GIPO_PYTHON=$PWD/.venv/bin/python GIPO_MUJOCO=$PWD/$build/wheel/mujoco \
  "qemu-$processor" -cpu max -L / "$build/tests/gipo_tests" --gtest_filter='-Slow*' "$@"
