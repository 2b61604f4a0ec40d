/* Any bytes to the graph parser. What it takes must print to a text that it takes again, and to the same one.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "ir/parse.h"
#include "ir/print.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bk_graph *g = NULL, *again = NULL;
    bk_str once = {0}, twice = {0};
    if (bk_graph_parse(&g, (const char *)data, (int64_t)size, "fuzz", NULL) != BK_OK) return 0;
    bk_graph_print(&once, g);
    if (bk_graph_parse(&again, bk_str_text(&once), (int64_t)once.len, "again", NULL) != BK_OK) abort();
    bk_graph_print(&twice, again);
    if (strcmp(bk_str_text(&once), bk_str_text(&twice)) != 0) abort();
    bk_str_free(&once), bk_str_free(&twice);
    bk_graph_free(g), bk_graph_free(again);
    return 0;
}
