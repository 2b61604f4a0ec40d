/* The scalars that training minimises. */
#include "model/parts.h"

void bk_build_loss_seed(bk_builder *b)
{
    if (b->train)
        b->io->loss_seed = bk_build_input(b, "loss_seed", b->g->real, BK_STEP, 1, (const int64_t[]){1});
}

void bk_build_loss(bk_builder *b, bk_vid value, double coeff)
{
    if (!b->train || b->st != BK_OK) return;
    if (b->io->n_losses == BK_MAX_LOSSES) {
        b->st = bk_err_set(b->e, BK_E_INPUT,
                           "the model has more than %d losses; use fewer layers with balancing losses",
                           BK_MAX_LOSSES);
        return;
    }
    b->io->losses[b->io->n_losses++] = (bk_model_loss){value, BK_NONE, coeff};
}

void bk_build_choice(bk_builder *b, bk_vid choice)
{
    if (b->train && b->st == BK_OK) b->io->choices[b->io->n_choices++] = choice;
}

/* The seed of a loss with this coefficient: one value for all of them. */
static bk_vid seed_of(bk_builder *b, int n_done, double coeff)
{
    if (coeff == 1) return b->io->loss_seed;
    for (int k = 0; k < n_done; k++)
        if (b->io->losses[k].coeff == coeff) return b->io->losses[k].seed;
    return bk_build_op1(b, &(bk_op_spec){BK_OP_scale, BK_IN(b->io->loss_seed), .name = "loss_seed.scaled",
                                         .attr = {{.f = coeff}}});
}

void bk_build_seeds(bk_builder *b)
{
    bk_build_names(b, "", "");
    bk_build_at(b, BK_NONE, BK_NODE_POST_PROCESS);
    for (int k = 0; k < b->io->n_losses; k++) b->io->losses[k].seed = seed_of(b, k, b->io->losses[k].coeff);
}

bk_status bk_build_objective(bk_vid *out, bk_graph *g, const bk_model_io *io, bk_err *e)
{
    bk_vid term[BK_MAX_LOSSES];
    bk_status st = BK_OK;
    *out = BK_NONE;
    for (int k = 0; k < io->n_losses && st == BK_OK; k++)
        st = bk_op_add(&term[k], g,
                       &(bk_op_spec){BK_OP_scale, BK_IN(io->losses[k].of), .n_out = 1, .name = "loss.scaled",
                                     .attr = {{.f = io->losses[k].coeff}}},
                       e);
    if (st == BK_OK && io->n_losses == 1) *out = term[0];
    if (st != BK_OK || io->n_losses < 2) return st;
    return bk_op_add(
        out, g, &(bk_op_spec){BK_OP_add_n, .in = term, .n_in = io->n_losses, .n_out = 1, .name = "objective"},
        e);
}
