#!/usr/bin/env bash
# bash launch/quickstart.sh [options] [key=value ...]
# Sets up .venv on first use, then plays the default duel. Everything typed here goes to `ssp train`.

set -euo pipefail

# shellcheck source=launch/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
ssp_setup run

# What sets no number of its own computes on one thread: two spinning thread pools on two cores are several times slower.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"
exec "$ssp_venv/bin/ssp" train --config quickstart "$@"
