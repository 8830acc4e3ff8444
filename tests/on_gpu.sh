#!/usr/bin/env bash
# Runs every cell of every chapter on this machine's accelerator, and prints a line a chapter:
#   tests/on_gpu.sh [NOTEBOOK…]
# Needs an environment whose JAX finds the device: `uv run noxfile.py -s lab` makes .venv, and
# `uv pip install --python .venv/bin/python "jax[cuda13]"` adds CUDA; PYTHON names another. Outputs are
# not compared, since numbers differ in their last digits; assertions are what must hold.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
[ $# -gt 0 ] || set -- chapters/*.ipynb
logs=build/on_gpu
mkdir -p "$logs"

"$python" -c 'import jax; print("JAX", jax.__version__, "on", jax.devices()[0].device_kind)' || exit 2

failed=0
for notebook; do
  name=$(basename "$notebook" .ipynb)
  mark='✅'
  "$python" -m pytest -q -p no:cacheprovider -o addopts= \
    --nbval-lax --nbval-current-env --nbval-cell-timeout=600 "$notebook" >"$logs/$name.log" 2>&1 ||
    { mark='❌' && failed=1; }
  printf '%s %-20s %s\n' "$mark" "$name" "$(grep -v '^$' "$logs/$name.log" | tail -n 1)"
done
[ "$failed" = 0 ] || echo "what failed: $logs/NAME.log" >&2
exit "$failed"
