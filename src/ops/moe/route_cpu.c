#include "ops/moe/route_cpu.h"

#include <string.h>

#define FEW 16384 /* elements for which threads are not worth while */

typedef struct {
    int64_t *begin; /* [experts + 1]: the expert's pairs are list[begin[e] .. begin[e + 1]) */
    int32_t *list;  /* pairs by expert, then token */
    real *sorted;   /* scratch for the probabilities of one expert */
} buckets;

static buckets buckets_in(void *workspace, int64_t n_pairs, int64_t n_experts)
{
    buckets b = {.begin = workspace};
    b.sorted = (real *)(b.begin + n_experts + 1);
    b.list = (int32_t *)(b.sorted + n_pairs);
    return b;
}

int64_t BK_R(bk_route_rows_workspace)(int64_t n_pairs, int64_t n_experts)
{
    return (n_experts + 1) * (int64_t)sizeof(int64_t) + n_pairs * (int64_t)(sizeof(real) + sizeof(int32_t));
}

static bool is_held(int32_t expert, bk_route_room room)
{
    return expert >= room.first && expert < room.first + room.local;
}

static void fill_buckets(buckets b, const int32_t *index, int64_t n_pairs, bk_route_room room)
{
    memset(b.begin, 0, (size_t)(room.local + 1) * sizeof *b.begin);
    for (int64_t p = 0; p < n_pairs; p++)
        if (is_held(index[p], room)) b.begin[index[p] - room.first + 1]++;
    for (int64_t e = 0; e < room.local; e++) b.begin[e + 1] += b.begin[e];
    for (int64_t p = 0; p < n_pairs; p++) /* begin[e] runs to the end of e, which is where e + 1 begins */
        if (is_held(index[p], room)) b.list[b.begin[index[p] - room.first]++] = (int32_t)p;
    for (int64_t e = room.local; e > 0; e--) b.begin[e] = b.begin[e - 1];
    b.begin[0] = 0;
}

static void sift_down(real *x, int64_t at, int64_t n)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && x[child + 1] < x[child]) child++;
        if (!(x[child] < x[at])) return;
        const real other = x[at];
        x[at] = x[child], x[child] = other;
    }
}

/* The m-th largest of n, in a heap of the m largest so far with the least on top; the order of x changes. */
static real mth_largest(real *x, int64_t n, int64_t m)
{
    for (int64_t k = m / 2; k-- > 0;) sift_down(x, k, m);
    for (int64_t k = m; k < n; k++)
        if (x[k] > x[0]) x[0] = x[k], sift_down(x, 0, m);
    return x[0];
}

/* Leaves `capacity` of the n pairs in the list, in their order. */
static void drop_improbable(int32_t *list, int64_t n, int64_t capacity, const real *probs, real *sorted)
{
    int64_t above = 0, kept = 0;
    for (int64_t k = 0; k < n; k++) sorted[k] = probs[list[k]];
    const real least = mth_largest(sorted, n, capacity);
    for (int64_t k = 0; k < n; k++) above += probs[list[k]] > least;
    for (int64_t k = 0, equal = capacity - above; k < n && kept < capacity; k++)
        if (probs[list[k]] > least || (!(probs[list[k]] < least) && equal-- > 0)) list[kept++] = list[k];
}

/* Rows from `row` on for one expert; returns the row after them. */
static int64_t place(int32_t *pair_of_row, int32_t *row_of_pair, const int32_t *list, int64_t n, int64_t row,
                     int64_t room)
{
    for (int64_t k = 0; k < n; k++, row++) {
        if (row >= room) continue;
        pair_of_row[row] = list[k];
        row_of_pair[list[k]] = (int32_t)row;
    }
    return row;
}

void BK_R(bk_route_rows)(int32_t *pair_of_row, int32_t *row_of_pair, int64_t *segments, int64_t *excess,
                         const int32_t *index, const real *probs, int64_t n_tokens, int64_t topk,
                         bk_route_room room, void *workspace)
{
    const int64_t n_pairs = n_tokens * topk;
    const buckets b = buckets_in(workspace, n_pairs, room.local);
    int64_t row = 0;
    fill_buckets(b, index, n_pairs, room);
    for (int64_t r = 0; r < room.rows; r++) pair_of_row[r] = -1;
    for (int64_t p = 0; p < n_pairs; p++) row_of_pair[p] = -1;
    for (int64_t e = 0; e < room.local; e++) {
        int32_t *list = b.list + b.begin[e];
        int64_t n = b.begin[e + 1] - b.begin[e];
        if (room.capacity > 0 && n > room.capacity) {
            if (!room.by_position) drop_improbable(list, n, room.capacity, probs, b.sorted);
            n = room.capacity;
        }
        segments[e] = row < room.rows ? row : room.rows;
        const int64_t end = place(pair_of_row, row_of_pair, list, n, row, room.rows);
        row = room.pad ? row + room.capacity : end;
    }
    segments[room.local] = row < room.rows ? row : room.rows;
    *excess = row > room.rows ? row - room.rows : 0;
}

void BK_R(bk_permute)(real *rows, const real *x, const int32_t *pair_of_row, int64_t n_rows, int64_t topk,
                      int64_t width)
{
#pragma omp parallel for schedule(static) if (n_rows * width > FEW)
    for (int64_t r = 0; r < n_rows; r++) {
        real *to = rows + r * width;
        if (pair_of_row[r] < 0)
            memset(to, 0, (size_t)width * sizeof *to);
        else
            memcpy(to, x + pair_of_row[r] / topk * width, (size_t)width * sizeof *to);
    }
}

void BK_R(bk_unpermute)(real *y, const real *rows, const int32_t *row_of_pair, int64_t n_tokens, int64_t topk,
                        int64_t width)
{
#pragma omp parallel for schedule(static) if (n_tokens * topk * width > FEW)
    for (int64_t t = 0; t < n_tokens; t++) {
        real *to = y + t * width;
        memset(to, 0, (size_t)width * sizeof *to);
        for (int64_t k = 0; k < topk; k++) {
            const int32_t row = row_of_pair[t * topk + k];
            if (row < 0) continue;
            const real *from = rows + row * width;
            for (int64_t c = 0; c < width; c++) to[c] += from[c];
        }
    }
}
