#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/vec.h"

static bk_status push_items(bk_schedule *s, const bk_graph *g, bk_scope scope, bool epilogue, int32_t micro,
                            bk_err *e)
{
    for (int64_t r = 0; r < g->n_regions; r++) {
        const bk_region *region = &g->region[r];
        if (region->scope != scope || region->epilogue != epilogue) continue;
        bk_status st;
        const bk_item item = {
            .region = (bk_rid)r, .micro = micro, .lane = (uint8_t)region->lane, .chunk = region->chunk};
        BK_VEC_PUSH(st, s->item, s->n_items, s->cap_items, item);
        if (st != BK_OK) return bk_err_set(e, st, "schedule: out of memory");
    }
    return BK_OK;
}

bk_status bk_schedule_plain(bk_schedule **out, const bk_graph *g, int32_t n_micro, bk_err *e)
{
    bk_schedule *s = calloc(1, sizeof *s);
    bk_status st = s ? BK_OK : bk_err_set(e, BK_E_MEM, "schedule: out of memory");
    if (st != BK_OK) return st;
    s->n_micro = n_micro;
    BK_TRY(push_items(s, g, BK_STEP, false, BK_NONE, e));
    for (int32_t m = 0; m < n_micro; m++) BK_TRY(push_items(s, g, BK_MICRO, false, m, e));
    BK_TRY(push_items(s, g, BK_STEP, true, BK_NONE, e));
    *out = s, s = NULL;
done:
    bk_schedule_free(s);
    return st;
}

void bk_schedule_free(bk_schedule *s)
{
    if (!s) return;
    free(s->item);
    free(s);
}

void bk_schedule_print(bk_str *out, const bk_schedule *s, const bk_graph *g)
{
    bk_str_appendf(out, "schedule %d micro-batches, %lld items\n", (int)s->n_micro, (long long)s->n_items);
    bk_str_appendf(out, "%6s  %-5s %5s %5s  %s\n", "item", "lane", "chunk", "micro", "region");
    for (int64_t i = 0; i < s->n_items; i++) {
        const bk_item *it = &s->item[i];
        char name[96], micro[16] = "-";
        if (it->micro != BK_NONE) snprintf(micro, sizeof micro, "%d", (int)it->micro);
        bk_str_appendf(out, "%6lld  %-5s %5d %5s  %s\n", (long long)i, bk_lane_names[it->lane],
                       (int)it->chunk, micro, bk_tag_name(name, sizeof name, g->region[it->region].tag));
    }
}
