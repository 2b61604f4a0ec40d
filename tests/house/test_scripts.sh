#!/bin/sh
# test_scripts.sh COMPILER: the scripts of this folder pass on a small tree that is in order, and fail, saying why, on
# the same tree with one thing out of order.
cc=$1
house=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# A tree in order: each folder includes what it may, a kernel reaches only base.
new_tree()
{
    rm -rf "$dir/t"
    mkdir -p "$dir/t/docs" "$dir/t/include/pub" "$dir/t/src/base" "$dir/t/src/ir" "$dir/t/src/ops/norm" "$dir/t/src/cli"
    cd "$dir/t" || exit 1
    cat >docs/architecture.md <<'EOF'
| `src/cli/` | a row outside the marks does not count | base |
<!-- include order -->
| folder | what | may include |
|---|---|---|
| `include/pub/` | the public interface | nothing |
| `src/base/` | basics | nothing |
| `src/ir/` | graph | base |
| `src/ops/` | rules | pub, base, ir |
| `src/ops/*_cpu.*` | kernels | pub, base |
| `src/cli/` | commands | all above |
<!-- end -->
EOF
    printf '#ifndef PUB_H\n#define PUB_H\nint pub(int x);\n#endif\n' >include/pub/pub.h
    printf '#ifndef BK_R\n#include "base/real.h"\n#endif\nvoid BK_R(norm)(real *y);\n' >src/ops/norm/norm_cpu.h
    printf 'typedef float real;\n#define BK_R(name) name##_f32\n' >src/base/real.h
    printf '#include BK_BOTH\n' >src/base/real_both.h
    printf '/* not one:\n * #include "ir/ir.h" */\nstatic inline int one(void) { return 1; }\n' >src/base/one.h
    printf '#include "base/one.h"\n' >src/ir/ir.h
    printf '#include <stddef.h>\n#include "base/one.h"\n#include "ops/norm/norm_cpu.h"\n#include "ops/norm/tile.h"\n' \
        >src/ops/norm/norm_cpu.c
    printf '#include "base/one.h"\n' >src/ops/norm/tile.h
    printf '#include "ir/ir.h"\n#define BK_BOTH "ops/norm/norm_cpu.h"\n#include "base/real_both.h"\n' >src/ops/norm/norm.c
    printf '#include <pub/pub.h>\n#include "ir/ir.h"\n' >src/cli/main.c
}

# expect STATUS TEXT NAME SCRIPT [ARGUMENT...]: the script's exit status, and a text that its output must hold.
expect()
{
    want=$1 text=$2 name=$3 script=$4
    shift 4
    out=$(sh "$house/$script" "$dir/t" "$@" 2>&1)
    status=$?
    if [ "$status" -eq "$want" ] && printf '%s' "$out" | grep -qF -e "$text"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s: exit status %d, expected %d and "%s" in:\n%s\n' "$name" "$status" "$want" "$text" "$out"
    fi
}

# order NAME TEXT FILE LINE: with LINE added to FILE the include order is violated, and TEXT is said.
order()
{
    new_tree
    mkdir -p "$(dirname "$3")"
    printf '%s\n' "$4" >>"$3"
    expect 1 "$2" "$1" include_order.sh
}

new_tree
expect 0 '11 includes in 10 files, 0 against the table' 'a tree in order' include_order.sh
order 'an earlier folder includes a later one' 'src/base/one.h:4: includes "ir/ir.h": base may not include ir' \
    src/base/one.h '#include "ir/ir.h"'
order 'blanks around the hash' 'base may not include ir' src/base/one.h '  #  include  "ir/ir.h"'
order 'angle brackets' 'base may not include ir' src/base/one.h '#include <ir/ir.h>'
order 'a kernel header named through BK_BOTH' 'ir may not include ops' src/ir/ir.h '#define BK_BOTH "ops/norm/norm_cpu.h"'
order 'the public interface includes the project' 'pub may not include base' include/pub/pub.h '#include "base/one.h"'
order 'a kernel includes the graph' 'the kernel src/ops/norm/norm_cpu.c may not reach ir' \
    src/ops/norm/norm_cpu.c '#include "ir/ir.h"'
order 'a kernel reaches the graph through a header' \
    'src/ops/norm/tile.h:2: includes "ir/ir.h": the kernel src/ops/norm/norm_cpu.c may not reach ir' \
    src/ops/norm/tile.h '#include "ir/ir.h"'
order 'a folder without a row' 'the folder extra has no row' src/extra/extra.c '#include "base/one.h"'
order 'an include of a folder without a row' 'extra has no row' src/cli/main.c '#include "extra/extra.h"'
order 'a name without its folder' 'write "one.h" as "folder/file.h"' src/ir/ir.h '#include "one.h"'
order 'a path that climbs' 'write "../base/one.h"' src/ir/ir.h '#include "../base/one.h"'
order 'an include through a macro' 'cannot see' src/ir/ir.h '#include SOME_HEADER'
new_tree
sed -i 's/| graph | base |/| graph | base, ops |/' docs/architecture.md
expect 1 'the row of ir names ops, which has no row above it' 'a row that names a later folder' include_order.sh
new_tree
sed -i '/end -->/i | `src/ir/` | again | base |' docs/architecture.md
expect 1 'a second row for ir' 'two rows for a folder' include_order.sh
new_tree
sed -i '/include order/d' docs/architecture.md
expect 1 'no table between' 'no table' include_order.sh
new_tree
rm -r src include docs/architecture.md
expect 1 'no ' 'no tree' include_order.sh

new_tree
expect 0 ' 0 failed' 'headers in order' headers_alone.sh "$cc" -Wall -Wextra
echo 'size_t n_items(void);' >>src/ir/ir.h
expect 1 'src/ir/ir.h does not compile alone' 'a header that lacks an include' headers_alone.sh "$cc" -Wall -Wextra
new_tree
echo 'static int unused(void) { return 1; }' >>src/ir/ir.h
expect 1 'src/ir/ir.h does not compile alone' 'a header with a warning' headers_alone.sh "$cc" -Wall -Wextra
new_tree
echo 'int n_items = 3;' >>src/ir/ir.h
expect 1 'src/ir/ir.h defines what' 'a header with a definition' headers_alone.sh "$cc"
new_tree
printf '#ifdef BK_REAL_F64\nmissing BK_R(x)(void);\n#endif\n' >>src/ops/norm/norm_cpu.h
expect 1 'norm_cpu.h (F64) does not compile alone' 'a kernel header wrong for double' headers_alone.sh "$cc"
new_tree
printf '#define real broken\n#include BK_BOTH\n' >>src/base/real_both.h
expect 1 'norm_cpu.h (real_both.h) does not compile alone' 'a kernel header wrong for both' headers_alone.sh "$cc"
rm -r src include
expect 1 '0 compilations' 'no headers' headers_alone.sh "$cc"

new_tree
expect 0 'C files' 'names in order' file_names.sh
cp src/base/one.h src/ops/norm/one.h
expect 1 'one.h is the name of more than one file' 'one name twice' file_names.sh
rm -r src include
expect 1 'no C files' 'no files' file_names.sh

# run_test.sh takes a program where the others take the root of a tree.
program()
{
    printf '#!/bin/sh\n%s\n' "$1" >"$dir/t/program"
    chmod +x "$dir/t/program"
}
run_test()
{
    sh "$house/run_test.sh" "$dir/t/program" >"$dir/out" 2>&1
    status=$?
    if [ "$status" -eq "$2" ] && grep -qF -e "$3" "$dir/out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s: exit status %d, expected %d\n' "$1" "$status" "$2"
    fi
}
program 'echo "[  PASSED  ] 1 test(s)."'
run_test 'a test that passes' 0 PASSED
program 'echo "[  SKIPPED ] test_x" >&2'
run_test 'a test that skips' 77 'SKIPPED: a part'
program 'echo "[  SKIPPED ] test_x"; echo why; exit 3'
run_test 'a test that skips and fails' 3 why
program 'echo before; kill -9 $$'
run_test 'a test that is killed' 137 before

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
