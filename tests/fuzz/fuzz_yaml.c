/* Any bytes as a config file: read, resolved where legal, dumped; never a crash, and a message whenever it is
 * refused. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    bk_config c;
    bk_err e = {0};
    bk_str dump = {0};
    bk_config_init(&c);
    bk_status st = bk_config_read_yaml_memory(&c, bytes, n, "fuzz.yaml", &e);
    if (st == BK_OK) st = bk_config_resolve(&c, &e);
    if (st == BK_OK) bk_config_dump(&dump, &c);
    if (st != BK_OK && (e.msg[0] == '\0' || e.status != st)) abort();
    bk_str_free(&dump);
    bk_config_free(&c);
    return 0;
}
