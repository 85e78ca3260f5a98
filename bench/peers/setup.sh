#!/usr/bin/env bash
# Installs the packages of bench/peers/requirements.txt into .venv-peers. Where one cannot be had, this says so and
# installs the others. With nothing missing it changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

requirements=bench/peers/requirements.txt
stamp=.venv-peers/requirements.sha256
wanted="$(sha256sum <"$requirements")"
if [[ -f "$stamp" && "$(<"$stamp")" == "$wanted" ]]; then
  echo "peers: the packages are there"
  exit
fi

[[ -x .venv-peers/bin/python ]] || .venv/bin/python -m venv .venv-peers
echo "peers: installing the packages of $requirements into .venv-peers"
pip=(.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-input)
if "${pip[@]}" -r "$requirements"; then
  echo "$wanted" >"$stamp"
  exit
fi
while read -r package; do
  "${pip[@]}" --constraint "$requirements" "$package" || echo "peers: $package could not be installed; going on" >&2
done < <(grep -v '^#' "$requirements")
