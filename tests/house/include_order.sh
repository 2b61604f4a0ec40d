#!/bin/sh
# include_order.sh ROOT: fails on an include under ROOT/src or ROOT/include that runs against the table in
# ROOT/docs/architecture.md. Prints one line for each violation.
root=$1
here=$(cd "$(dirname "$0")" && pwd)
table=$root/docs/architecture.md
if [ ! -f "$table" ]; then
    echo "include_order: no $table, where the table of folders should be"
    exit 1
fi
cd "$root" || exit 1
# shellcheck disable=SC2046 # file names of the project hold no spaces
LC_ALL=C awk -f "$here/include_order.awk" docs/architecture.md $(
    find src include -type f \( -name '*.[ch]' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null |
        LC_ALL=C sort
)
