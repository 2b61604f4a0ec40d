#!/bin/sh
# file_names.sh ROOT: fails when two C files of the tree have one name, so that file:line in a message is enough.
cd "$1" || exit 1
files=$(find src include tests bench -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null)
if [ -z "$files" ]; then
    echo "file_names: no C files in $1"
    exit 1
fi
twice=$(printf '%s\n' "$files" | sed 's|.*/||' | LC_ALL=C sort | uniq -d)
for name in $twice; do
    echo "$name is the name of more than one file:"
    printf '%s\n' "$files" | grep "/$name\$"
done
[ -z "$twice" ] && echo "$(printf "%s\n" "$files" | wc -l) C files, no name twice"
