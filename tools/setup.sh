#!/bin/sh
# setup.sh [--ci]: installs what the build needs and this machine lacks (Debian 12 and its relatives; root or sudo).
# Does nothing where all is there. --ci: also what .ci/run needs.
set -eu

packages=
# need PACKAGE COMMAND...: PACKAGE is missing if COMMAND fails.
need()
{
    package=$1
    shift
    "$@" >/dev/null 2>&1 || packages="$packages $package"
}
has() { command -v "$1"; }
lib() { pkg-config --exists "$1"; }

need gcc has gcc
need libc6-dev test -e /usr/include/stdio.h
need cmake has cmake
need ninja-build has ninja
need pkg-config has pkg-config
need git has git
need libopenblas-openmp-dev lib openblas
need libyaml-dev lib yaml-0.1
need libcjson-dev lib libcjson
need libxxhash-dev lib libxxhash
need libprotobuf-c-dev lib libprotobuf-c
need protobuf-c-compiler has protoc-c
need libcmocka-dev lib cmocka
case "${1-}" in
'') ;;
--ci)
    # With -fsanitize and -fopenmp: clang finds its own run-time libraries.
    program='int main(void) { return 0; }'
    clang_links() { echo "$program" | clang -x c "$@" -o /dev/null -; }
    need clang has clang
    need clang-format has clang-format
    need libclang-rt-14-dev clang_links -fsanitize=address,undefined,fuzzer-no-link
    need libomp-dev clang_links -fopenmp=libomp
    ;;
*)
    echo "setup.sh: unknown argument $1; the only one is --ci" >&2
    exit 2
    ;;
esac
[ -n "$packages" ] || exit 0

echo "setup: to install:$packages"
if ! has apt-get >/dev/null; then
    echo "setup.sh: this system has no apt-get; install what corresponds to these Debian packages:$packages" >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    root=
elif has sudo >/dev/null; then
    root=sudo
else
    echo "setup.sh: not root, and no sudo; have an administrator run: apt-get install$packages" >&2
    exit 1
fi
install()
{
    # shellcheck disable=SC2086 # a list of packages, and no word where root is empty
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -q $packages
}
$root apt-get update -q
if ! apt-cache show libopenblas-openmp-dev >/dev/null 2>&1; then
    packages=$(echo "$packages" | sed 's/libopenblas-openmp-dev/libopenblas-dev/') # where OpenBLAS has one build only
fi
install
