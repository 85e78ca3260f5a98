#!/usr/bin/env bash
# Compiles what is for NVIDIA cards, about a minute; needs CUDA's compiler nvcc, and no card. Where nvcc is neither
# installed nor to be had from PyPI it says so, and that is no failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_nvcc() {
  local candidate
  for candidate in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc .venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    if [[ -x "$candidate" ]]; then
      realpath "$candidate"
      return
    fi
  done
}
nvcc=$(find_nvcc)
if [[ -z "$nvcc" ]]; then
  .venv/bin/python -m pip install -q --no-deps --disable-pip-version-check -r scripts/requirements-cuda.txt 2>/dev/null || true
  nvcc=$(find_nvcc)
fi
if [[ -z "$nvcc" ]]; then
  echo "cuda_compiles: nvcc is not installed, and PyPI has none for this machine; the code for cards is not compiled"
  exit 0
fi

out=build/cuda_compiles
mkdir -p "$out"
common=(-std=c++20 -Isrc -isystem /usr/include/eigen3 -DBOOST_ALL_NO_LIB)
compile() {
  local source=$1 object
  object=$out/$(tr '/' '_' <<<"$source").o
  local architectures=(-gencode arch=compute_90,code=sm_90)
  [[ "$source" == */products.cu ]] && architectures+=(-gencode arch=compute_90a,code=sm_90a)  # has code for it alone
  if [[ "$source" == *.cu ]]; then
    "$nvcc" "${architectures[@]}" --expt-relaxed-constexpr -Werror all-warnings -Xcompiler=-Wall "${common[@]}" -c "$source" -o "$object"
  else
    "${CXX:-g++}" -Wall -Wextra -Werror -fsyntax-only "${common[@]}" -isystem "$(dirname "$nvcc")/../include" "$source"
  fi
}
sources=(src/gipo/{learner,population}/cuda/*.{cu,cc})
status=0
running=0
for source in "${sources[@]}"; do
  if ((running >= ${JOBS:-$(nproc)})); then
    wait -n || status=1
    running=$((running - 1))
  fi
  compile "$source" &
  running=$((running + 1))
done
while ((running > 0)); do
  wait -n || status=1
  running=$((running - 1))
done
((status == 0)) && echo "cuda_compiles: ${#sources[@]} files compile with $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/nvcc \1/p')"
exit "$status"
