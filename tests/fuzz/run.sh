#!/usr/bin/env bash
# Runs every libFuzzer program of a folder and prints a line for each; ends with 1 where one found something, whose
# input is then left beside the program.
#
#   tests/fuzz/run.sh PROGRAMS-FOLDER SECONDS [JOBS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs="$1" seconds="$2" jobs="${3:-1}"

fuzz_one() {
  local program="$1" seconds="$2" name folder corpora
  name="$(basename "$program")"
  folder="$program.found" corpora=("$program.found/corpus")
  [[ ! -d "tests/fuzz/corpus/${name#fuzz_}" ]] || corpora+=("tests/fuzz/corpus/${name#fuzz_}")
  mkdir -p "$folder/corpus"
  if GIPO_FUZZ_SEEDS="$folder/corpus" "$program" -max_total_time="$seconds" -malloc_limit_mb=64 -rss_limit_mb=512 \
    -timeout=5 -max_len=65536 -len_control=100 -print_final_stats=1 -artifact_prefix="$folder/" \
    "${corpora[@]}" >"$folder/log" 2>&1; then
    echo "$name: $(sed -n 's/stat::number_of_executed_units: *//p' "$folder/log") inputs, nothing found"
  else
    echo "$name: FOUND: $(grep -m1 -E 'ERROR:|runtime error:|SUMMARY:' "$folder/log"); see $folder/log"
    return 1
  fi
}
export -f fuzz_one

# xargs ends with 123 where one of them failed.
find "$programs" -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x -print0 | sort -z |
  xargs -0 -P "$jobs" -I{} bash -c 'fuzz_one "$1" "$2"' fuzz_one {} "$seconds" || exit 1
