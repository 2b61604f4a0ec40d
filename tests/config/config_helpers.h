/* For the tests of src/config: a configuration from text, and messages. */
#ifndef BK_TESTS_CONFIG_HELPERS_H
#define BK_TESTS_CONFIG_HELPERS_H

#include <string.h>

#include "config/config.h"

/* The required options, small. */
#define SMALL "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 24\nvocab_size: 96\n"

/* Reads the text as "t.yaml" into a fresh configuration and resolves it; the caller frees c. */
static inline bk_status config_from(bk_config *c, const char *text, bk_err *e)
{
    bk_config_init(c);
    const bk_status st = bk_config_read_yaml_memory(c, text, strlen(text), "t.yaml", e);
    return st == BK_OK ? bk_config_resolve(c, e) : st;
}

/* The text is refused as bad input, and the message holds each of the parts, up to NULL. */
#define assert_refused(text, ...)                                                                            \
    do {                                                                                                     \
        bk_config c_;                                                                                        \
        bk_err e_ = {0};                                                                                     \
        const bk_status st_ = config_from(&c_, (text), &e_);                                                 \
        bk_config_free(&c_);                                                                                 \
        const char *const parts_[] = {__VA_ARGS__};                                                          \
        for (size_t i_ = 0; i_ < sizeof parts_ / sizeof *parts_; i_++)                                       \
            if (!strstr(e_.msg, parts_[i_])) fail_msg("\"%s\" is not in: %s", parts_[i_], e_.msg);           \
        assert_int_equal(st_, BK_E_INPUT);                                                                   \
    } while (0)

#define assert_accepted(c, text)                                                                             \
    do {                                                                                                     \
        bk_err e_ = {0};                                                                                     \
        if (config_from((c), (text), &e_) != BK_OK) fail_msg("refused: %s", e_.msg);                         \
    } while (0)

#endif
