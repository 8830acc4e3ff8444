#!/usr/bin/env bash
# Gradescope runs this once, as root, to build the image: Python, the locked packages, what the
# grader finds out once a course. AUTOGRADER_ROOT is for trying it elsewhere.
set -euo pipefail
root=${AUTOGRADER_ROOT:-/autograder}
cd "$root/source"
. ./settings.sh

# With bubblewrap learners' code is isolated, if the container may make namespaces.
apt-get update -qq
apt-get install -y -qq --no-install-recommends bubblewrap libseccomp2 python3-venv

python3 -m venv "$root/uv"
"$root/uv/bin/pip" install --quiet uv
export UV_PYTHON_INSTALL_DIR=$root/python UV_NO_CACHE=1
"$root/uv/bin/uv" venv --quiet --python '>=3.11,<3.15' "$root/venv"
"$root/uv/bin/uv" pip install --quiet --compile-bytecode --python "$root/venv/bin/python" \
  --constraint "$LOCK" --requirements pyproject.toml ${EXTRA:+--extra "$EXTRA"}

JAX_PLATFORMS=cpu "$root/venv/bin/python" -m autograder.gradescope prepare "$CHAPTER" "$root"
