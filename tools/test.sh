#!/bin/sh
# test.sh [OPTION...]: installs what is missing, builds, and runs all tests. Options go to ctest:
# tools/test.sh -R mhc
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh
cmake --preset release --log-level=NOTICE
cmake --build --preset release
exec ctest --preset release "$@"
