#!/bin/sh
# quickstart.sh [OPTION...]: installs what is missing, builds, and trains the built-in configuration. Options go to
# `birkhoff train`: tools/quickstart.sh --train-iters 100
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh
cmake --preset release --log-level=NOTICE
cmake --build --preset release --target birkhoff
exec build/release/birkhoff train "$@"
