#!/usr/bin/env bash
# Installs the packages of bench/peers/requirements.txt into bench/peers/.venv. Where one cannot be had, this says so and
# installs the others. With nothing missing it changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

stamp=.venv/requirements.sha256
wanted="$(sha256sum <requirements.txt)"
if [[ -f "$stamp" && "$(<"$stamp")" == "$wanted" ]]; then
  echo "peers: the packages are there"
  exit
fi

[[ -x .venv/bin/python ]] || ../../.venv/bin/python -m venv .venv
echo "peers: installing the packages of bench/peers/requirements.txt into bench/peers/.venv"
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input)
if "${pip[@]}" -r requirements.txt; then
  echo "$wanted" >"$stamp"
  exit
fi
while read -r package; do
  "${pip[@]}" --constraint requirements.txt "$package" || echo "peers: $package could not be installed; going on" >&2
done < <(grep -v '^#' requirements.txt)
