/* Lengths are NumPy's default_rng(0).integers(1, 4096): a PCG64 whose state after seeding is written down,
 * its 64-bit outputs taken as two 32-bit draws, and Lemire's multiplication to bound them. */
#include "data/mock.h"

#include <stdlib.h>

enum { N_SEQUENCES = 100000, N_LENGTHS = 4095 };

typedef unsigned __int128 u128;

typedef struct {
    u128 state, increment;
    uint64_t output;
    int n_left; /* 32-bit halves of `output` not yet used */
} pcg64;

static u128 wide(uint64_t high, uint64_t low)
{
    return (u128)high << 64 | low;
}

static uint32_t draw(pcg64 *rng)
{
    if (rng->n_left == 0) {
        rng->state =
            rng->state * wide(UINT64_C(0x2360ed051fc65da4), UINT64_C(0x4385df649fccf645)) + rng->increment;
        const uint64_t folded = (uint64_t)(rng->state >> 64) ^ (uint64_t)rng->state;
        const int turn = (int)(rng->state >> 122);
        rng->output = folded >> turn | folded << (-turn & 63);
        rng->n_left = 2;
    }
    return (uint32_t)(rng->n_left-- == 2 ? rng->output : rng->output >> 32);
}

/* Uniform in [0, n). The product's low half below 2^32 mod n marks what would come up once too often. */
static uint32_t draw_below(pcg64 *rng, uint32_t n)
{
    const uint32_t excess = -n % n;
    uint64_t product;
    do product = (uint64_t)draw(rng) * n;
    while ((uint32_t)product < excess);
    return (uint32_t)(product >> 32);
}

bk_status bk_mock_make(bk_mock *out, int32_t eod, bk_err *e)
{
    pcg64 rng = {.state = wide(UINT64_C(0x1aa1b5345996452d), UINT64_C(0x09585eb7a69561e3)),
                 .increment = wide(UINT64_C(0x418ddadb3af71a82), UINT64_C(0x588133bc447873a9))};
    int32_t *lengths = malloc(N_SEQUENCES * sizeof *lengths);
    if (!lengths) return bk_err_set(e, BK_E_MEM, "mock data: out of memory");
    for (int i = 0; i < N_SEQUENCES; i++) lengths[i] = (int32_t)draw_below(&rng, N_LENGTHS) + 1;
    *out = (bk_mock){.lengths = lengths, .eod = eod};
    return BK_OK;
}

void bk_mock_free(bk_mock *m)
{
    free(m->lengths);
    *m = (bk_mock){0};
}

static int64_t length_of(const void *ctx, int64_t sequence)
{
    return ((const bk_mock *)ctx)->lengths[sequence];
}

static bk_status read_tokens(int32_t *out, const void *ctx, int64_t sequence, int64_t offset, int64_t n,
                             int64_t vocab_size, bk_err *e)
{
    const bk_mock *m = ctx;
    const int64_t last = m->lengths[sequence] - 1;
    if (m->eod < 0 || m->eod >= vocab_size)
        return bk_err_set(e, BK_E_INPUT,
                          "mock data: the end of a document, %d, is not in the vocabulary of %lld",
                          (int)m->eod, (long long)vocab_size);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = offset + i;
        out[i] = at == last ? m->eod : (int32_t)((at + 1) % vocab_size);
    }
    return BK_OK;
}

bk_sequences bk_mock_sequences(const bk_mock *m)
{
    return (bk_sequences){
        .ctx = m, .name = "mock data", .n_sequences = N_SEQUENCES, .length = length_of, .read = read_tokens};
}
