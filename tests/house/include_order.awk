# Usage: awk -f include_order.awk TABLE FILE...   (from the root of the tree; see include_order.sh)
#
# TABLE is a markdown file. Its rows "| `src/x/` | what | a, b |" between the marks <!-- include order --> and
# <!-- end --> say what files of folder x may include: folders of rows above, "nothing", or "all above".
# A FILE is src/x/... or include/x/.... A kernel is a *_cpu.[ch] under src/ops and every header of ops that it
# reaches; kernels may include what the row of "`src/ops/*_cpu.*`" lists, and ops.

function complain(text)
{
    print text
    bad++
}

# The folder that a row is about: "base" of " `src/base/` ".
function row_name(text, quoted, part)
{
    split(text, quoted, "`")
    if (quoted[2] ~ /_cpu/) return "kernels"
    return folder_of(quoted[2])
}

function folder_of(path, part)
{
    split(path, part, "/")
    return part[2]
}

FILENAME == ARGV[1] {
    if ($0 ~ /<!-- include order -->/) in_table = 1
    if ($0 ~ /<!-- end -->/) in_table = 0
    if (!in_table || $0 !~ /^\| *`/) next
    split($0, cell, "|")
    name = row_name(cell[2])
    n = split(cell[4], list, ",")
    for (i = 1; i <= n; i++) {
        to = list[i]
        gsub(/^ +| +$|`|\//, "", to)
        if (to == "all above")
            for (j = 1; j <= n_rows; j++) may[name, row[j]] = 1
        else if (to in listed)
            may[name, to] = 1
        else if (to != "nothing")
            complain(FILENAME ":" FNR ": the row of " name " names " to ", which has no row above it")
    }
    if (name in listed) complain(FILENAME ":" FNR ": a second row for " name)
    listed[name] = 1
    if (name != "kernels") row[++n_rows] = name
    next
}

FNR == 1 {
    from = folder_of(FILENAME)
    n_files++
    if (!(from in listed))
        complain(FILENAME ":1: the folder " from " has no row in " ARGV[1])
    if (from == "ops" && FILENAME ~ /_cpu\.[ch]$/) kernel[FILENAME] = FILENAME
}

# What is included, as "folder/..."; "" where the line includes nothing of the project.
{
    path = ""
    if ($0 ~ /^[ \t]*#[ \t]*include[ \t]*"/ || $0 ~ /^[ \t]*#[ \t]*define[ \t]+BK_BOTH[ \t]+"/) {
        split($0, quoted, "\"")
        path = quoted[2]
        if (path !~ /\// || path ~ /(^|\/)\.\.?(\/|$)/) {
            complain(FILENAME ":" FNR ": write \"" path "\" as \"folder/file.h\"")
            next
        }
    } else if ($0 ~ /^[ \t]*#[ \t]*include[ \t]*</) {
        split($0, quoted, /[<>]/)
        path = quoted[2]
        split(path, part, "/")
        if (!(part[1] in listed) || path !~ /\//) next # a header of the system
    } else if ($0 ~ /^[ \t]*#[ \t]*include/ && $0 !~ /include[ \t]+BK_BOTH/) {
        complain(FILENAME ":" FNR ": the test cannot see what this includes: " $0)
        next
    } else
        next
    split(path, part, "/")
    to = part[1]
    n_includes++
    if (!(to in listed))
        complain(FILENAME ":" FNR ": includes \"" path "\", and " to " has no row in " ARGV[1])
    else if (to != from && !((from, to) in may))
        complain(FILENAME ":" FNR ": includes \"" path "\": " from " may not include " to)
    if (from == "ops") {
        edge[++n_edges] = FILENAME
        edge_to[n_edges] = path
        edge_line[n_edges] = FNR
    }
}

END {
    do { # everything of ops that a kernel reaches
        grown = 0
        for (i = 1; i <= n_edges; i++) {
            file = "src/" edge_to[i]
            if (edge[i] in kernel && edge_to[i] ~ /^ops\// && !(file in kernel)) {
                kernel[file] = kernel[edge[i]]
                grown = 1
            }
        }
    } while (grown)
    for (i = 1; i <= n_edges; i++) {
        split(edge_to[i], part, "/")
        if (!(edge[i] in kernel) || part[1] == "ops" || ("kernels", part[1]) in may) continue
        complain(edge[i] ":" edge_line[i] ": includes \"" edge_to[i] "\": the kernel " kernel[edge[i]] \
                 " may not reach " part[1])
    }
    if (n_rows == 0) complain(ARGV[1] ": no table between <!-- include order --> and <!-- end -->")
    if (n_includes == 0) complain("no include was read")
    printf "%d includes in %d files, %d against the table\n", n_includes, n_files, bad
    exit bad > 0
}
