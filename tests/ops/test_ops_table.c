#include "op_bench.h"

static void test_ops_table__attributes_by_name_and_number(void **state)
{
    (void)state;
    bool f = false;
    assert_int_equal(bk_attr_count(BK_OP_feed), 0);
    assert_int_equal(bk_attr_count(BK_OP_attention), 4);
    assert_int_equal(bk_attr_index(BK_OP_attention, "seed", &f), 2);
    assert_false(f);
    assert_int_equal(bk_attr_index(BK_OP_attention, "p", &f), 1);
    assert_true(f);
    assert_int_equal(bk_attr_index(BK_OP_adamw, "beta", NULL), BK_NONE);
    assert_int_equal(bk_attr_index(BK_OP_adamw, "beta22", NULL), BK_NONE);
    int len = 0;
    const char *name = bk_attr_name(&len, &f, BK_OP_adamw, 3);
    assert_int_equal(len, 5);
    assert_memory_equal(name, "decay", 5);
    assert_null(bk_attr_name(&len, &f, BK_OP_adamw, 4));
}

static void test_ops_table__rows_are_consistent(void **state)
{
    (void)state;
    for (int k = 0; k < BK_N_OPS; k++) {
        const bk_op_info *o = &bk_ops[k];
        assert_true(o->in_min <= o->in_max && o->out_min <= o->out_max && o->upd_min <= o->upd_max);
        assert_true(o->alias_out < o->out_max && o->alias_in < o->in_max);
        assert_int_equal(o->alias_out == BK_NONE, o->alias_in == BK_NONE);
        assert_true(o->upd_max == 0 || o->effect == BK_UPDATES);
        assert_true(bk_attr_count((bk_op_kind)k) <= BK_MAX_ATTRS);
        assert_non_null(o->rules->shape);
        assert_non_null(o->rules->spread);
        assert_non_null(o->rules->cpu);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_table__attributes_by_name_and_number),
        cmocka_unit_test(test_ops_table__rows_are_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
