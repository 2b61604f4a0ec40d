#!/bin/sh
# quickstart.sh [OPTION...]: installs what is missing, builds, and trains the built-in configuration with a checkpoint in
# runs/. Options go to `birkhoff train`: tools/quickstart.sh --train-iters 100
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh
cmake --preset release --log-level=NOTICE
cmake --build --preset release --target birkhoff
case " $* " in
*' --save '* | *' --save='* | *' --load '* | *' --load='*) ;;
*) set -- --save "runs/$(date +%Y%m%d-%H%M%S)" --save-interval 400 "$@" ;;
esac
exec build/release/birkhoff train "$@"
