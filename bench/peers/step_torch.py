"""The peer of the tables: birkhoff's dense model written in PyTorch, one training step timed.

    step_torch.py --config FILE [--option value ...] [--steps N] [--warmup N] [--threads N] [--bf16] [--compile]
    step_torch.py --oracle FILE.safetensors      # compare loss and gradients with reference vectors

Reads birkhoff's YAML keys. Prints one line of JSON. Needs torch, numpy and PyYAML; birkhoff needs none of them.
Parameters carry the names of birkhoff's checkpoints. Activations are [batch, position, ...].
"""
import argparse
import json
import math
import struct
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
import yaml
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


def norm_of(s):
    return nn.LayerNorm(s.width, s.eps) if s.layernorm else nn.RMSNorm(s.width, s.eps)


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


def rope_table(s, seq):
    angle = torch.arange(seq).float()[:, None] / s.rope_base ** (torch.arange(0, s.head, 2).float() / s.head)
    return torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()


def rotate(x, rope):
    a, b = x.chunk(2, -1)
    return x * rope[0] + torch.cat((-b, a), -1) * rope[1]


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.linear_fc1 = nn.Linear(s.width, s.inner * (2 if s.swiglu else 1), bias=s.bias)
        self.linear_fc2 = nn.Linear(s.inner, s.width, bias=s.bias)

    def forward(self, x):
        h = self.linear_fc1(x)
        if self.s.swiglu:
            gate, up = h.chunk(2, -1)
            return self.linear_fc2(F.silu(gate) * up)
        return self.linear_fc2(F.gelu(h, approximate="tanh" if self.s.gelu_tanh else "none"))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        if s.streams:
            self.self_attention_hyper_connection = HyperConnection(s)
            self.mlp_hyper_connection = HyperConnection(s)
        self.streams = s.streams
        self.input_layernorm, self.pre_mlp_layernorm = norm_of(s), norm_of(s)
        self.self_attention, self.mlp = Attention(s), Mlp(s)

    def wrap(self, x, connection, sublayer):
        if not self.streams:
            return x + sublayer(x)
        h_pre, h_post, h_res = connection(x)
        y = sublayer((h_pre.unsqueeze(-2) @ x).squeeze(-2))
        return h_res.transpose(-1, -2) @ x + h_post.unsqueeze(-1) * y.unsqueeze(-2)

    def forward(self, x, rope):
        x = self.wrap(x, getattr(self, "self_attention_hyper_connection", None),
                      lambda a: self.self_attention(self.input_layernorm(a), rope))
        return self.wrap(x, getattr(self, "mlp_hyper_connection", None),
                         lambda a: self.mlp(self.pre_mlp_layernorm(a)))


class Decoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.final_layernorm = norm_of(s)
        if s.streams:
            self.hc_head_fn = nn.Parameter(torch.empty(s.streams, s.streams * s.width))
            nn.init.xavier_uniform_(self.hc_head_fn)
            self.hc_head_base = nn.Parameter(torch.zeros(s.streams))
            self.hc_head_scale = nn.Parameter(torch.ones(1))

    def contract(self, x):
        with torch.autocast("cpu", enabled=False):
            flat = x.float().flatten(-2)
            rho = (flat.square().mean(-1, keepdim=True) + self.s.eps).rsqrt()
            w = torch.sigmoid(rho * F.linear(flat, self.hc_head_fn) * self.hc_head_scale + self.hc_head_base)
            return ((w + self.s.eps).unsqueeze(-2) @ x.float()).squeeze(-2)

    def forward(self, h, rope):
        if self.s.streams:
            h = h.unsqueeze(-2).expand(*h.shape[:-1], self.s.streams, h.shape[-1])
        for layer in self.layers:
            h = layer(h, rope)
        return self.final_layernorm(self.contract(h) if self.s.streams else h)


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.embedding = nn.Module()
        self.embedding.word_embeddings = nn.Embedding(s.padded_vocab, s.width)
        if not s.rope:
            self.embedding.position_embeddings = nn.Embedding(s.positions, s.width)
        self.decoder = Decoder(s)
        if not s.tied:
            self.output_layer = nn.Linear(s.width, s.padded_vocab, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens, labels):
        """The loss of each token, [batch, position]."""
        seq = tokens.shape[1]
        h = self.embedding.word_embeddings(tokens)
        if not self.s.rope:
            h = h + self.embedding.position_embeddings.weight[:seq]
        h = self.decoder(h, rope_table(self.s, seq) if self.s.rope else None)
        w = self.embedding.word_embeddings.weight if self.s.tied else self.output_layer.weight
        logits = F.linear(h, w)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    kinds = {"F32": np.float32, "I32": np.int32, "I64": np.int64, "F64": np.float64}
    meta = header.pop("__metadata__", {})
    tensors = {}
    for name, t in header.items():
        if t["dtype"] in kinds:
            begin, end = t["data_offsets"]
            tensors[name] = torch.from_numpy(np.frombuffer(data[begin:end], kinds[t["dtype"]]).reshape(t["shape"]).copy())
    return tensors, meta


def check_oracle(path):
    """Loss and every gradient against reference vectors, within the errors of fp32."""
    t, meta = read_safetensors(path)
    o = json.loads(meta["config"])
    o.update(position_embedding_type=o["position_embedding"], make_vocab_size_divisible_by=1,
             swiglu=o["gated_linear_unit"], bias_gelu_fusion=False,
             untie_embeddings_and_output_weights=not o["tied"], enable_mhc_connections=o["enable_hyper_connections"],
             mhc_num_residual_streams=o["num_residual_streams"])
    model = Model(Shape(o))
    model.load_state_dict({k[6:]: v for k, v in t.items() if k.startswith("param.")}, strict=True)
    mask = t["in.loss_mask"]
    loss = (model(t["in.tokens"].long(), t["in.labels"].long()) * mask).sum() / mask.sum()
    loss.backward()
    worst, at, bad = 0.0, "", []
    for name, p in model.named_parameters():
        want = t["grad." + name].double()
        off, size = (p.grad.double() - want).norm().item(), want.norm().item()
        if off > 2e-4 * size + 1e-7:
            bad.append(name)
        if size > 1e-3 and off / size > worst:
            worst, at = off / size, name
    loss_off = abs(loss.item() - t["out.loss"].item()) / t["out.loss"].item()
    print(f"{path}: loss {loss.item():.7f}, off by {loss_off:.1e}; largest error of a gradient {worst:.1e} ({at})")
    if loss_off > 2e-5 or bad:
        sys.exit(f"step_torch: not the model of {path}: " + (", ".join(bad) or "the loss differs"))


def options_of(config, flags):
    o = yaml.safe_load(open(config)) if config else {}
    for name, value in zip(flags[::2], flags[1::2]):
        o[name.lstrip("-").replace("-", "_")] = yaml.safe_load(value)
    return o


def time_steps(o, n_steps, n_warmup, bf16, compiled):
    torch.manual_seed(1)
    s = Shape(o)
    model = Model(s)
    run = torch.compile(model) if compiled else model
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    decay = float(o.get("weight_decay", 0.01))
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": decay},
                                   {"params": vectors, "weight_decay": 0.0}], lr=float(o["lr"]),
                                  betas=(float(o.get("adam_beta1", 0.9)), float(o.get("adam_beta2", 0.999))),
                                  eps=float(o.get("adam_eps", 1e-8)), fused=True)
    clip = float(o.get("clip_grad", 1.0))
    wall, cpu = [], []
    for i in range(n_warmup + n_steps):
        tokens = torch.randint(0, s.vocab, (s.batch, s.seq + 1))
        start, start_cpu = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = run(tokens[:, :-1], tokens[:, 1:]).mean()
        loss.backward()
        if clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last = loss.item()
        if i >= n_warmup:
            wall.append(time.perf_counter() - start), cpu.append(time.process_time() - start_cpu)
    n = s.batch * s.seq
    print(json.dumps({"engine": "pytorch " + torch.__version__, "precision": "bf16" if bf16 else "fp32", "compiled": compiled,
                      "threads": torch.get_num_threads(), "tokens": n, "step_s": min(wall),
                      "mean_step_s": sum(wall) / len(wall), "cpu_s": min(cpu), "tokens_per_s": n / min(wall),
                      "tokens_per_cpu_s": n / min(cpu), "last_loss": last}))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--config")
    a.add_argument("--oracle", nargs="+")
    a.add_argument("--steps", type=int, default=5)
    a.add_argument("--warmup", type=int, default=2)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--bf16", action="store_true")
    a.add_argument("--compile", action="store_true", help="through torch.compile, which wants a C++ compiler")
    known, flags = a.parse_known_args()
    torch.set_num_threads(known.threads)
    if known.oracle:
        for path in known.oracle:
            check_oracle(path)
    else:
        time_steps(options_of(known.config, flags), known.steps, known.warmup, known.bf16, known.compile)


if __name__ == "__main__":
    main()
