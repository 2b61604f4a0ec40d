#include "plan/check.h"

#include "plan/access.h"

bk_status bk_plan_check(const bk_plan *p, bk_err *e)
{
    bk_happens h = {0};
    bk_accesses a = {0};
    bk_status st = BK_OK;
    BK_TRY(bk_check_complete(p, e));
    BK_TRY(bk_happens_init(&h, p, e));
    BK_TRY(bk_accesses_init(&a, p, &h, e));
    BK_TRY(bk_check_order(&a, e));
    BK_TRY(bk_check_memory(&a, e));
    BK_TRY(bk_check_gradients(&a, e));
    BK_TRY(bk_check_replay(&a, e));
    BK_TRY(bk_check_spread(p, e));
done:
    bk_accesses_free(&a);
    bk_happens_free(&h);
    return st;
}
