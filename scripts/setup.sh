#!/usr/bin/env bash
# Installs what building, testing and the demo need, only where it is missing: Debian (or Ubuntu) packages by name, and
# a Python environment in .venv. Safe to run again; with nothing missing it changes nothing.
#
#   scripts/setup.sh               all that `make demo` and `make test` need
#   scripts/setup.sh --demo        only what `make demo` needs: nothing that is for tests
#   scripts/setup.sh --lint        clang-format and clang-tidy as well
#   scripts/setup.sh --fuzz        clang and libFuzzer as well
#   scripts/setup.sh --peers       OpenBLAS as well, for a peer of bench/peers
#   scripts/setup.sh --docs        mkdocs as well, for the site
#   scripts/setup.sh --wheels      debootstrap, auditwheel and SWIG as well, for wheels
#   scripts/setup.sh --box2d       Box2D as well, for LunarLander and BipedalWalker; compiles it, about a minute
#   scripts/setup.sh --metaworld   EnvPool and metaworld as well, about 800 MB
#   scripts/setup.sh --libero      LIBERO and robosuite, in an environment of their own, .venv-libero, about 1.3 GB
#   scripts/setup.sh --torch       libtorch as well, for builds with the backend torch, about 600 MB (2 GB on x86-64)
#   scripts/setup.sh --large       libtorch as well, and what the large model is compared with, about 150 MB more
#   scripts/setup.sh --cluster     gRPC and Ray as well, for learners and actors on different hosts, about 350 MB
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build make pkg-config
  libeigen3-dev librandom123-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libfmt-dev libboost-dev
)
for_tests=(libgtest-dev libbenchmark-dev)
tools=(c++ cmake ninja make)
requirements=(requirements)
libero=false
for argument in "$@"; do
  case "$argument" in
    --demo)
      for_tests=()
      requirements=(requirements-demo)
      ;;
    --lint)
      packages+=(clang-format clang-tidy)
      tools+=(clang-format clang-tidy)
      ;;
    --fuzz)
      packages+=(clang libclang-rt-dev)
      tools+=(clang++)
      ;;
    --peers) packages+=(libopenblas-dev) ;;
    --docs) requirements+=(requirements-docs) ;;
    --wheels)
      packages+=(debootstrap)
      tools+=(debootstrap)
      requirements+=(requirements-wheels requirements-swig)
      ;;
    --box2d) requirements+=(requirements-swig requirements-box2d) ;;
    --metaworld) requirements+=(requirements-metaworld) ;;
    --libero) libero=true ;;
    --torch) requirements+=(requirements-torch) ;;
    --large) requirements+=(requirements-torch requirements-large) ;;
    --cluster)
      packages+=(libgrpc++-dev libgrpc-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libssl-dev)
      tools+=(protoc grpc_cpp_plugin)
      requirements+=(requirements-cluster requirements-ray)
      ;;
    *)
      echo "setup: unknown argument $argument; known: --demo, --lint, --fuzz, --peers, --docs, --wheels, --box2d," \
        "--metaworld, --libero, --torch, --large, --cluster" >&2
      exit 2
      ;;
  esac
done
packages+=("${for_tests[@]}")

say() { echo "setup: $*"; }
die() {
  echo "setup: $*" >&2
  exit 1
}

# The first Python that is new enough, can make environments, and has the headers for modules in C++. Debian's own lacks
# ensurepip without python3-venv and the headers without python3-dev.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import ensurepip, os, sys, sysconfig, venv
sys.exit(sys.version_info < (3, 11) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
      >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

# For this processor: packages for another may stand beside them.
installed() {
  dpkg-query -W -f '${Architecture} ${db:Status-Status}\n' "$1" 2>/dev/null |
    grep -Eqx "(all|$(dpkg --print-architecture)) installed"
}

# What is of use but not needed, where it is not there but apt has it (Ubuntu has no chromium, newer Debian no OSMesa):
# the browser that pages are tested in; what draws MuJoCo's tasks without a display, EGL or OSMesa; a display and keys for
# the tests of `gipo play`.
optional=(chromium libegl1 libgl1-mesa-dri libosmesa6 xvfb xdotool)
wanted_optional() {
  local package
  ((${#for_tests[@]})) || return 0
  for package in "${optional[@]}"; do
    if ! installed "$package" && apt-cache show "$package" >/dev/null 2>&1; then echo "$package"; fi
  done
}

install_packages() {
  local missing=() wanted=() package as_root=()
  for package in "${packages[@]}"; do
    installed "$package" || missing+=("$package")
  done
  # Another Python (pyenv, conda) will do: the system's is asked for only where none is usable.
  find_python >/dev/null || missing+=(python3 python3-venv python3-dev)
  mapfile -t wanted < <(wanted_optional)
  if ((${#missing[@]} + ${#wanted[@]} == 0)); then
    say "all Debian packages are there"
    return
  fi

  if ((EUID != 0)); then
    if ((${#missing[@]} == 0)) && ! command -v sudo >/dev/null; then
      say "not root and no sudo: tests that need ${wanted[*]} will be left out"
      return
    fi
    command -v sudo >/dev/null || die "not root and no sudo; install these as root: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]} ${wanted[*]}"
  # Another apt at work is waited for. What apt says is shown only when it fails.
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  local log
  log="$(mktemp)"
  if ! { "${as_root[@]}" "${apt[@]}" update && mapfile -t wanted < <(wanted_optional) &&
    "${as_root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}" "${wanted[@]}"; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "apt-get could not install ${missing[*]}"
  fi
  rm -f "$log"
}

# Elsewhere than on Debian the user installs; CMake then says which library it cannot find.
check_tools() {
  local tool absent=()
  for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || absent+=("$tool")
  done
  find_python >/dev/null || absent+=("python3 (3.11 or later, with venv and headers)")
  say "no apt-get here; these must be there, under the names your system has for them: ${packages[*]} python3"
  ((${#absent[@]} == 0)) || die "not found: ${absent[*]}"
  say "the tools are there; going on"
}

# The lines of a file of requirements. Those of the demo are some of the first one's. SWIG and what else builds Box2D
# come before it.
lines_of() {
  if [[ "$1" == requirements-demo ]]; then
    grep -E '^(gymnasium|matplotlib|mujoco|numpy|tensorboard)\b' scripts/requirements.txt
  elif [[ "$1" == requirements-swig ]]; then
    grep -E '^(swig|setuptools|wheel)' scripts/requirements-box2d.txt
  else
    cat "scripts/$1.txt"
  fi
}

# The environment $1 with the packages of the files after it.
make_environment() {
  local venv="$1" python wanted name stamp flags
  shift
  if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python="$(find_python)" || die "no Python 3.11 or later that can make environments was found"
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
  fi

  for name in "$@"; do
    stamp="$venv/$name.sha256"
    wanted="$(lines_of "$name" | sha256sum)"
    if [[ -f "$stamp" && "$(<"$stamp")" == "$wanted" ]]; then
      say "the Python packages of $name are there"
      continue
    fi
    say "installing the Python packages of $name into $venv"
    flags=()
    # They name what is needed: torch asks for all of CUDA, LIBERO for torch.
    [[ "$name" != requirements-torch && "$name" != requirements-large && "$name" != requirements-libero ]] || flags=(--no-deps)
    [[ "$name" != requirements-box2d ]] || flags=(--no-build-isolation)
    PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
      "${flags[@]}" -r <(lines_of "$name")
    echo "$wanted" >"$stamp"
  done
}

if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
  install_packages
else
  check_tools
fi
make_environment .venv "${requirements[@]}"
if $libero; then make_environment .venv-libero requirements-libero; fi
