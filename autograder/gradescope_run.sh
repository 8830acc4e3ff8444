#!/usr/bin/env bash
# Gradescope runs this for each submission: it grades /autograder/submission and writes
# /autograder/results/results.json. AUTOGRADER_ROOT and AUTOGRADER_PYTHON are for trying it elsewhere.
set -euo pipefail
root=${AUTOGRADER_ROOT:-/autograder}
cd "$root/source"
. ./settings.sh
export JAX_PLATFORMS=cpu
exec "${AUTOGRADER_PYTHON:-$root/venv/bin/python}" -m autograder.gradescope grade "$CHAPTER" "$root"
