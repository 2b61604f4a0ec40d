#!/bin/sh
# headers_alone.sh ROOT COMPILER [FLAG...]: every header compiles alone, as C17 and without a warning, and defines no
# external function or object. A header over `real` (base/real.h) must do so as float and as double, and as both
# through base/real_both.h where some file takes it that way. Headers of include/ must be plain C17 besides.
root=$1 cc=$2
shift 2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=0 bad=0

# alone WHAT TEXT FLAG...: compiles the text.
alone()
{
    what=$1
    printf "%b" "$2" >"$dir/alone.c"
    shift 2
    n=$((n + 1))
    if ! "$cc" -std=c17 -Werror "$@" -Isrc -Iinclude -c "$dir/alone.c" -o "$dir/alone.o" 2>"$dir/log"
    then
        echo "$what does not compile alone:"
        cat "$dir/log"
        bad=$((bad + 1))
    elif nm -g --defined-only "$dir/alone.o" | grep -q .; then
        echo "$what defines what a .c file should:"
        nm -g --defined-only "$dir/alone.o"
        bad=$((bad + 1))
    fi
}

cd "$root" || exit 1
for header in $(find include -name '*.h' 2>/dev/null | LC_ALL=C sort); do
    path=${header#include/}
    alone "$header" "#include \"$path\"\n" "$@" -pedantic
done
for header in $(find src -name '*.h' ! -name real_both.h | LC_ALL=C sort); do
    path=${header#src/}
    if grep -q 'BK_R(' "$header" && [ "$path" != base/real.h ]; then
        for real in F32 F64; do
            alone "$header ($real)" "#include \"$path\"\n" "$@" -D_GNU_SOURCE -DBK_REAL_$real=1
        done
        if grep -rqF "#define BK_BOTH \"$path\"" src; then
            alone "$header (real_both.h)" "#define BK_BOTH \"$path\"\n#include \"base/real_both.h\"\n" "$@" -D_GNU_SOURCE
        fi
    else
        alone "$header" "#include \"$path\"\n" "$@" -D_GNU_SOURCE
    fi
done
echo "$n compilations of headers alone, $bad failed"
[ "$n" -gt 0 ] && [ "$bad" -eq 0 ]
