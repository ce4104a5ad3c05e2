#!/usr/bin/env bash
# bash launch/test.sh [--nightly] [--long] [pytest arguments]
# Sets up .venv on first use, then runs every layer: lint, types, fast tests, tests on real Ray. --nightly adds the board in
# a browser, vLLM on Ray, two nodes, jobs and chaos, of which the Ray layer has one short test each; --long adds the tests that
# take many minutes and new examples for property tests. Pytest arguments replace the layers and go to one pytest call.

set -euo pipefail

nightly=no
long=no
while [[ "${1:-}" == --nightly || "${1:-}" == --long ]]; do
    printf -v "${1#--}" yes
    shift
done

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch/setup.sh
source "$here/setup.sh"
ssp_setup test
cd "$ssp_root"

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"
unset PYTHONDONTWRITEBYTECODE # hundreds of processes start, and each would compile the package and the tests again
bin="$ssp_venv/bin"

if (($#)); then
    [[ "$long" == yes ]] || set -- -m "not long" "$@" # a -m of the user comes later and wins
    exec "$bin/python" -m pytest "$@"
fi

failed=0
table=""
mark="$(mktemp)"
export SSP_TEST_SHARED="$mark.shared" # tiny policies and worlds of the tests, made once for all processes
mkdir "$SSP_TEST_SHARED"
# Types are checked beside the fast tests: in one process, which would leave the other processors idle.
"$bin/mypy" ssp actors launch >"$mark.types" 2>&1 &
mypy=$!
trap 'kill "$mypy" 2>/dev/null || true; rm -rf "$mark" "$mark.types" "$SSP_TEST_SHARED"' EXIT

# layer NAME COMMAND...: runs it to the end whatever came before, and notes time and result.
layer() {
    local name="$1" started=$SECONDS code=0 result=passed
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@" || code=$?
    if ((code == 5)) && [[ "${2:-} ${3:-}" == "-m pytest" ]]; then
        result="no tests" # pytest's exit code for an empty selection
    elif ((code != 0)); then
        result="FAILED (exit code $code)"
        failed=1
    fi
    table+="$(printf '%-8s %6d s  %s' "$name" $((SECONDS - started)) "$result")"$'\n'
}

# types: waits for what was started above, and says what it found.
types() {
    local code=0
    wait "$mypy" || code=$?
    cat "$mark.types"
    return "$code"
}

layer lint "$bin/ruff" check .
layer format "$bin/ruff" format --check .
# A file's tests stay together: they share what is slow to make, of Ray's a cluster a process. Those have time limits.
layer fast "$bin/python" -m pytest -m "not ray and not nightly and not long" -n logical --maxprocesses=4 --dist loadfile
layer types types
slowest=(launch/test_two_nodes launch/test_learning actors/test_learners launch/test_train launch/test_declared_on_ray
    launch/test_warmup_command learning/test_ranks actors/test_transfer actors/test_lost_blocks engines/test_vllm_engine)
# No other file is imported. The slowest begin (CONTRIBUTING.md says what they hold), so that no process ends long after the other.
mapfile -t files < <({
    printf 'tests/%s.py\n' "${slowest[@]}"
    grep -rl --include='test_*.py' 'mark\.ray\b' tests --exclude-dir=bench | sort -r
} | awk '!seen[$0]++')
layer ray "$bin/python" -m pytest -m "ray and not nightly and not long" -n logical --maxprocesses=2 --dist loadfile --no-loadscope-reorder "${files[@]}" # else the files of one long test come last
for logs in /tmp/ssp-ray-*/session_latest/logs; do # left only by a pytest process that died before its summary
    if [[ -d "$logs" && "$logs" -nt "$mark" ]]; then
        printf '\n== the last words of Ray in %s\n' "$logs"
        tail -n 15 "$logs"/python-core-driver-*.log "$logs"/gcs_server.out "$logs"/raylet.out || true
    fi
done
if [[ "$nightly" == yes ]]; then
    layer nightly "$bin/python" -m pytest -m "nightly and not long"
    layer bench "$bin/python" -m pytest -m "not long" tests/bench
fi
if [[ "$long" == yes ]]; then
    layer long "$bin/python" -m pytest -m long tests tests/bench
    layer search "$bin/python" -m pytest -m "hypothesis and not ray and not long" --hypothesis-profile=search
fi

if [[ -f "$ssp_venv/.ssp-no-vllm" ]]; then
    table+="$(printf '%-8s %6d s  %s' vllm 0 "SKIPPED: $(cat "$ssp_venv/.ssp-no-vllm")")"$'\n'
fi
if ! { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then
    table+="$(printf '%-8s %6d s  %s' browser 0 "SKIPPED: no Chromium for the board's tests (apt-get install chromium)")"$'\n'
fi

printf '\nlayer      time    result\n%s' "$table"
exit "$failed"
