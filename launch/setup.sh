# Sourced by quickstart.sh and test.sh: makes .venv beside this folder, once.
# Owns the environment and its stamp (a hash of what it was made from). Promises that an unfinished or moved environment
# is completed or made anew, and that a torch which pip can find for this machine is kept.
# Refuses to know what is started in it.

set -euo pipefail

ssp_root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
ssp_venv="$ssp_root/.venv"
ssp_torch="torch==2.13.0" # the pin of setup.cfg; tests/test_structure.py compares the two

ssp_fail() {
    echo "ssp: $*" >&2
    exit 2
}

# Prints the first interpreter that is Python 3.11 or 3.12 and can make environments.
ssp_python() {
    local name
    for name in python3 python3.11 python3.12 python; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
            >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    ssp_fail "Python 3.11 or 3.12 with the venv module is needed. Found: $(python3 --version 2>/dev/null || echo none)." \
        "Next: install it (Debian, Ubuntu: apt-get install python3 python3-venv), then run this command again."
}

# ssp_setup run|test: .venv with the package, and for `test` with the test tools as well.
ssp_setup() {
    local kind="$1" wanted python
    if ! "$ssp_venv/bin/python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
        >/dev/null 2>&1; then
        python="$(ssp_python)"
        echo "ssp: making $ssp_venv with $("$python" --version)"
        "$python" -m venv --clear "$ssp_venv"
    fi
    # The path is part of the stamp: the installed package points at this folder.
    wanted="$(cd "$ssp_root" && { pwd && cat setup.cfg pyproject.toml; } | cksum)"
    if [[ "$(cat "$ssp_venv/.ssp-test" 2>/dev/null || true)" == "$wanted" ]]; then return; fi
    if [[ "$kind" == run && "$(cat "$ssp_venv/.ssp-run" 2>/dev/null || true)" == "$wanted" ]]; then return; fi

    local quiet=()
    [[ -t 1 ]] || quiet=(--quiet --progress-bar off)
    echo "ssp: installing into $ssp_venv (about 1.6 GB; minutes, by the network's speed)"
    # torch goes first and alone: a build that pip's own settings offer (CPU only, say) is then kept by what follows.
    ssp_pip install ${quiet[@]+"${quiet[@]}"} "$ssp_torch"
    if [[ "$kind" == test ]]; then
        ssp_pip install ${quiet[@]+"${quiet[@]}"} --editable "$ssp_root[test]"
    else
        ssp_pip install ${quiet[@]+"${quiet[@]}"} --editable "$ssp_root[cpu]"
    fi
    echo "$wanted" >"$ssp_venv/.ssp-$kind"
}

ssp_pip() {
    "$ssp_venv/bin/python" -m pip --disable-pip-version-check "$@" ||
        ssp_fail "pip could not install. Next: read its message above, check the network, then run this command again."
}
