"""The model of birkhoff written in PyTorch, as its users write such models: experts in a loop.

Parameters carry the names of birkhoff's checkpoints. Activations are [batch, position, ...].
"""
import torch
import torch.nn.functional as F
from torch import nn


class Shape:
    """The options that the model depends on, with birkhoff's defaults."""

    def __init__(self, o):
        self.layers, self.width = int(o["num_layers"]), int(o["hidden_size"])
        self.heads = int(o["num_attention_heads"])
        self.groups = int(o.get("num_query_groups") or self.heads)
        self.head = int(o.get("kv_channels") or self.width // self.heads)
        self.swiglu = bool(o.get("swiglu", False))
        self.inner = int(o.get("ffn_hidden_size") or 4 * self.width)
        self.seq = int(o["seq_length"])
        step = int(o.get("make_vocab_size_divisible_by", 128))
        self.vocab = int(o["vocab_size"])
        self.padded_vocab = -(-self.vocab // step) * step
        self.rope = o.get("position_embedding_type", "learned_absolute") == "rope"
        self.rope_base = float(o.get("rotary_base", 10000))
        self.positions = int(o.get("max_position_embeddings") or self.seq)
        self.layernorm = o.get("normalization", "LayerNorm") == "LayerNorm"
        self.eps = float(o.get("layernorm_epsilon", 1e-5))
        self.bias = bool(o.get("add_bias_linear", True))
        self.tied = not o.get("untie_embeddings_and_output_weights", False)
        self.gelu_tanh = bool(o.get("bias_gelu_fusion", True))
        self.streams = int(o.get("mhc_num_residual_streams", 4)) if o.get("enable_mhc_connections") else 0
        self.sinkhorn = int(o.get("mhc_sinkhorn_iterations", 20))
        self.gate = float(o.get("mhc_init_gating_factor", 0.01))
        self.batch = int(o.get("micro_batch_size", 1))
        self.read_attention(o)
        self.read_experts(o)
        self.mtp = int(o.get("mtp_num_layers") or 0)
        self.mtp_scale = float(o.get("mtp_loss_scaling_factor", 0.1)) / max(self.mtp, 1)

    def read_attention(self, o):
        self.mla = bool(o.get("multi_latent_attention", False))
        if not self.mla:
            return
        if o.get("rope_type", "yarn") != "rope":
            raise SystemExit("model_torch: of the rope types this has rope alone")
        self.q_rank, self.kv_rank = int(o.get("q_lora_rank") or 0), int(o.get("kv_lora_rank", 32))
        self.d_nope, self.d_rope = int(o.get("qk_head_dim", 128)), int(o.get("qk_pos_emb_head_dim", 64))
        self.d_value = int(o.get("v_head_dim", 128))
        self.latent_norms = bool(o.get("qk_layernorm", False))
        self.head = self.d_rope  # what the rope table is for

    def read_experts(self, o):
        self.experts = int(o.get("num_experts") or 0)
        freq = o.get("moe_layer_freq", 1)
        self.has_experts = [bool(self.experts) and (i % freq == 0 if isinstance(freq, int) else bool(freq[i]))
                            for i in range(self.layers)]
        if not self.experts:
            return
        if o.get("moe_router_num_groups") or o.get("moe_expert_capacity_factor"):
            raise SystemExit("model_torch: no groups of experts and no capacity here")
        self.topk = int(o.get("moe_router_topk", 2))
        self.moe_inner = int(o.get("moe_ffn_hidden_size") or self.inner)
        self.shared = int(o.get("moe_shared_expert_intermediate_size") or 0)
        self.sigmoid = o.get("moe_router_score_function", "softmax") == "sigmoid"
        self.router_scale = float(o.get("moe_router_topk_scaling_factor") or 1)
        self.by_sequence = o.get("moe_router_load_balancing_type", "aux_loss") == "seq_aux_loss"
        self.aux, self.z = float(o.get("moe_aux_loss_coeff", 0)), float(o.get("moe_z_loss_coeff") or 0)
        self.bias_rate = float(o.get("moe_router_bias_update_rate", 1e-3)) if o.get("moe_router_enable_expert_bias") else 0


def norm_of(s, width=None):
    kind = nn.LayerNorm if s.layernorm else nn.RMSNorm
    return kind(width or s.width, s.eps)


def sinkhorn(logits, iterations):
    """[.., source, destination]: softmax over destinations, then columns and rows in turn, columns last."""
    m = torch.softmax(logits, -1) + 1e-6
    m = m / (m.sum(-2, keepdim=True) + 1e-6)
    for _ in range(iterations - 1):
        m = m / (m.sum(-1, keepdim=True) + 1e-6)
        m = m / (m.sum(-2, keepdim=True) + 1e-6)
    return m


class HyperConnection(nn.Module):
    def __init__(self, s):
        super().__init__()
        n, k = s.streams, s.streams * s.width
        self.n, self.iterations = n, s.sinkhorn
        self.mapping_proj = nn.Linear(k, n * n + 2 * n, bias=False)
        nn.init.xavier_uniform_(self.mapping_proj.weight)
        for name in ("alpha_pre", "alpha_post", "alpha_res"):
            setattr(self, name, nn.Parameter(torch.full((1,), s.gate)))
        self.bias = nn.Parameter(torch.zeros(n * n + 2 * n))

    def forward(self, x):
        """x [.., n, C] -> h_pre [.., n], h_post [.., n], h_res [.., n, n], all in fp32."""
        n = self.n
        with torch.autocast("cpu", enabled=False):
            flat = x.float().flatten(-2)
            p = F.linear(flat, self.mapping_proj.weight)
            r = 1 / (flat.square().mean(-1, keepdim=True).sqrt() + 1e-6)
            pre, post, res = (r * p).split((n, n, n * n), -1)
            b_pre, b_post, b_res = self.bias.split((n, n, n * n))
            h_pre = torch.sigmoid(self.alpha_pre * pre + b_pre) + 1e-6
            h_post = 2 * torch.sigmoid(self.alpha_post * post + b_post)
            h_res = sinkhorn((self.alpha_res * res + b_res).unflatten(-1, (n, n)), self.iterations)
        return h_pre, h_post, h_res


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.linear_qkv = nn.Linear(s.width, (s.heads + 2 * s.groups) * s.head, bias=s.bias)
        self.linear_proj = nn.Linear(s.heads * s.head, s.width, bias=s.bias)

    def forward(self, x, rope):
        s, (batch, seq, _) = self.s, x.shape
        per = s.heads // s.groups
        qkv = self.linear_qkv(x).view(batch, seq, s.groups, per + 2, s.head)
        q, k, v = qkv.split((per, 1, 1), 3)
        q, k, v = (t.flatten(2, 3).transpose(1, 2) for t in (q, k, v))
        if rope is not None:
            q, k = rotate(q, rope), rotate(k, rope)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s.groups != s.heads)
        return self.linear_proj(o.transpose(1, 2).flatten(2))


class LatentAttention(nn.Module):
    """Queries, keys and values through narrow projections (DeepSeek-V2's MLA); one rotary key for all heads."""

    def __init__(self, s):
        super().__init__()
        self.s = s
        width = s.heads * (s.d_nope + s.d_rope)
        if s.q_rank:
            self.linear_q_down_proj = nn.Linear(s.width, s.q_rank, bias=False)
            self.linear_q_up_proj = nn.Linear(s.q_rank, width, bias=False)
        else:
            self.linear_q_proj = nn.Linear(s.width, width, bias=False)
        self.linear_kv_down_proj = nn.Linear(s.width, s.kv_rank + s.d_rope, bias=False)
        self.linear_kv_up_proj = nn.Linear(s.kv_rank, s.heads * (s.d_nope + s.d_value), bias=False)
        self.linear_proj = nn.Linear(s.heads * s.d_value, s.width, bias=s.bias)
        if s.latent_norms:
            if s.q_rank:
                self.q_layernorm = norm_of(s, s.q_rank)
            self.kv_layernorm = norm_of(s, s.kv_rank)

    def queries(self, x):
        if not self.s.q_rank:
            return self.linear_q_proj(x)
        latent = self.linear_q_down_proj(x)
        return self.linear_q_up_proj(self.q_layernorm(latent) if self.s.latent_norms else latent)

    def forward(self, x, rope):
        s = self.s
        latent, k_rope = self.linear_kv_down_proj(x).split((s.kv_rank, s.d_rope), -1)
        kv = self.linear_kv_up_proj(self.kv_layernorm(latent) if s.latent_norms else latent)
        q, kv = (t.unflatten(-1, (s.heads, -1)).transpose(1, 2) for t in (self.queries(x), kv))
        q_nope, q_rope = q.split((s.d_nope, s.d_rope), -1)
        k_nope, v = kv.split((s.d_nope, s.d_value), -1)
        q = torch.cat((q_nope, rotate(evens_first(q_rope), rope)), -1)
        k_rope = rotate(evens_first(k_rope), rope).unsqueeze(1).expand(-1, s.heads, -1, -1)
        o = F.scaled_dot_product_attention(q, torch.cat((k_nope, k_rope), -1), v, is_causal=True)
        return self.linear_proj(o.transpose(1, 2).flatten(2))


def evens_first(x):
    return torch.cat((x[..., 0::2], x[..., 1::2]), -1)


def rope_table(s, seq):
    angle = torch.arange(seq).float()[:, None] / s.rope_base ** (torch.arange(0, s.head, 2).float() / s.head)
    return torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()


def rotate(x, rope):
    a, b = x.chunk(2, -1)
    return x * rope[0] + torch.cat((-b, a), -1) * rope[1]


class Mlp(nn.Module):
    def __init__(self, s, inner):
        super().__init__()
        self.s = s
        self.linear_fc1 = nn.Linear(s.width, inner * (2 if s.swiglu else 1), bias=s.bias)
        self.linear_fc2 = nn.Linear(inner, s.width, bias=s.bias)

    def forward(self, x, scale=None):
        """`scale` [.., 1] multiplies what stands between the two products."""
        h = self.linear_fc1(x)
        if self.s.swiglu:
            gate, up = h.chunk(2, -1)
            a = F.silu(gate) * up
        else:
            a = F.gelu(h, approximate="tanh" if self.s.gelu_tanh else "none")
        return self.linear_fc2(a if scale is None else a * scale)


class Experts(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.router = nn.Linear(s.width, s.experts, bias=False)
        self.experts = nn.Module()
        self.experts.local_experts = nn.ModuleList(Mlp(s, s.moe_inner) for _ in range(s.experts))
        if s.shared:
            self.shared_experts = Mlp(s, s.shared)
        self.register_buffer("expert_bias", torch.zeros(s.experts), persistent=False)
        self.register_buffer("chosen", torch.zeros(s.experts), persistent=False)

    def route(self, logits):
        """Probabilities and experts [tokens, k], and the scores of all experts, which add up to one."""
        s = self.s
        if not s.sigmoid:
            top, index = logits.topk(s.topk, -1)
            return torch.softmax(top, -1) * s.router_scale, index, torch.softmax(logits, -1)
        scores = torch.sigmoid(logits)
        index = (scores.detach() + self.expert_bias).topk(s.topk, -1).indices
        top = scores.gather(-1, index)
        if s.topk > 1:
            top = top / (top.sum(-1, keepdim=True) + 1e-20)
        return top * s.router_scale, index, scores / (scores.sum(-1, keepdim=True) + 1e-20)

    def balance(self, scores, index, sequences):
        """The Switch loss, over all tokens or as the mean over sequences."""
        s, groups = self.s, sequences if self.s.by_sequence else 1
        counts = F.one_hot(index.view(groups, -1), s.experts).sum(1)
        share = scores.view(groups, -1, s.experts)
        n = share.shape[1]
        return s.aux * s.experts / (s.topk * n * n) * (counts * share.sum(1)).sum(-1).mean()

    def forward(self, x, losses):
        shape, x = x.shape, x.flatten(0, -2)
        with torch.autocast("cpu", enabled=False):
            logits = F.linear(x.float(), self.router.weight)
            probs, index, scores = self.route(logits)
            if self.s.bias_rate:
                self.chosen += torch.bincount(index.flatten(), minlength=self.s.experts)
            if self.s.aux:
                losses.append(self.balance(scores, index, shape[0]))
            if self.s.z:
                losses.append(self.s.z * logits.logsumexp(-1).square().mean())
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts.local_experts):
            token, slot = torch.where(index == e)
            if len(token):
                y.index_add_(0, token, expert(x[token], probs[token, slot].unsqueeze(-1)).to(y.dtype))
        y = y.view(shape)
        return y + self.shared_experts(x).view(shape) if self.s.shared else y


    @torch.no_grad()
    def update_bias(self):
        """After a step: experts with fewer tokens than the mean become more likely to be chosen."""
        self.expert_bias += self.s.bias_rate * torch.sign(self.chosen.mean() - self.chosen)
        self.chosen.zero_()


class Layer(nn.Module):
    def __init__(self, s, has_experts):
        super().__init__()
        if s.streams:
            self.self_attention_hyper_connection = HyperConnection(s)
            self.mlp_hyper_connection = HyperConnection(s)
        self.streams = s.streams
        self.input_layernorm, self.pre_mlp_layernorm = norm_of(s), norm_of(s)
        self.self_attention = LatentAttention(s) if s.mla else Attention(s)
        self.has_experts = has_experts
        self.mlp = Experts(s) if has_experts else Mlp(s, s.inner)

    def wrap(self, x, connection, sublayer):
        if not self.streams:
            return x + sublayer(x)
        h_pre, h_post, h_res = connection(x)
        y = sublayer((h_pre.unsqueeze(-2) @ x).squeeze(-2))
        return h_res.transpose(-1, -2) @ x + h_post.unsqueeze(-1) * y.unsqueeze(-2)

    def forward(self, x, rope, losses):
        x = self.wrap(x, getattr(self, "self_attention_hyper_connection", None),
                      lambda a: self.self_attention(self.input_layernorm(a), rope))
        return self.wrap(x, getattr(self, "mlp_hyper_connection", None),
                         lambda a: self.mlp(self.pre_mlp_layernorm(a), *([losses] if self.has_experts else [])))


class Contraction(nn.Module):
    """What ends a chain of layers: the streams become one, which is normalised."""

    def add_contraction(self, s):
        self.s = s
        self.final_layernorm = norm_of(s)
        if s.streams:
            self.hc_head_fn = nn.Parameter(torch.empty(s.streams, s.streams * s.width))
            nn.init.xavier_uniform_(self.hc_head_fn)
            self.hc_head_base = nn.Parameter(torch.zeros(s.streams))
            self.hc_head_scale = nn.Parameter(torch.ones(1))

    def contract(self, x):
        if not self.s.streams:
            return self.final_layernorm(x)
        with torch.autocast("cpu", enabled=False):
            flat = x.float().flatten(-2)
            rho = (flat.square().mean(-1, keepdim=True) + self.s.eps).rsqrt()
            w = torch.sigmoid(rho * F.linear(flat, self.hc_head_fn) * self.hc_head_scale + self.hc_head_base)
            h = ((w + self.s.eps).unsqueeze(-2) @ x.float()).squeeze(-2)
        return self.final_layernorm(h)


class Decoder(Contraction):
    def __init__(self, s):
        super().__init__()
        self.layers = nn.ModuleList(Layer(s, has) for has in s.has_experts)
        self.add_contraction(s)

    def forward(self, h, rope, losses):
        """The streams, and what the output layer reads."""
        if self.s.streams:
            h = h.unsqueeze(-2).expand(*h.shape[:-1], self.s.streams, h.shape[-1])
        for layer in self.layers:
            h = layer(h, rope, losses)
        return h, self.contract(h)


class MtpLayer(Contraction):
    """One depth of multi-token prediction, with hyper-connections."""

    def __init__(self, s):
        super().__init__()
        self.enorm, self.hnorm = norm_of(s), norm_of(s)
        self.e_proj = nn.Linear(s.width, s.width, bias=False)
        self.h_proj = nn.Linear(s.width, s.width, bias=False)
        self.mtp_model_layer = Layer(s, s.has_experts[-1])
        self.add_contraction(s)

    def forward(self, x, embedded, rope, losses):
        x = self.e_proj(self.enorm(embedded)).unsqueeze(-2) + self.h_proj(self.hnorm(x))
        x = self.mtp_model_layer(x, rope, losses)
        return x, self.contract(x)


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.embedding = nn.Module()
        self.embedding.word_embeddings = nn.Embedding(s.padded_vocab, s.width)
        if not s.rope:
            self.embedding.position_embeddings = nn.Embedding(s.positions, s.width)
        self.decoder = Decoder(s)
        if s.mtp:
            if not s.streams:
                raise SystemExit("model_torch: multi-token prediction needs hyper-connections here")
            self.mtp = nn.Module()
            self.mtp.layers = nn.ModuleList(MtpLayer(s) for _ in range(s.mtp))
        if not s.tied:
            self.output_layer = nn.Linear(s.width, s.padded_vocab, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def update_biases(self):
        for module in self.modules():
            if isinstance(module, Experts) and self.s.bias_rate:
                module.update_bias()

    def embed(self, tokens):
        h = self.embedding.word_embeddings(tokens)
        return h if self.s.rope else h + self.embedding.position_embeddings.weight[:tokens.shape[1]]

    def token_losses(self, h, labels):
        w = self.embedding.word_embeddings.weight if self.s.tied else self.output_layer.weight
        logits = F.linear(h, w)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)

    def forward(self, tokens, labels, mask):
        """The mean loss of tokens with mask 1, [batch, position], and what training adds to it."""
        losses = []
        rope = rope_table(self.s, tokens.shape[1]) if self.s.rope else None
        x, h = self.decoder(self.embed(tokens), rope, losses)
        loss = (self.token_losses(h, labels) * mask).sum() / mask.sum()
        for layer in self.mtp.layers if self.s.mtp else ():
            tokens, labels, mask = (F.pad(t[:, 1:], (0, 1)) for t in (tokens, labels, mask))
            x, h = layer(x, self.embed(tokens), rope, losses)
            losses.append(self.s.mtp_scale * (self.token_losses(h, labels) * mask).sum() / mask.sum().clamp(min=1))
        return loss, sum(losses)
