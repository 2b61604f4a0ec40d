"""The peer of the tables: birkhoff's model written in PyTorch (model_torch.py), one training step timed.

    step_torch.py --config FILE [--option value ...] [--steps N] [--warmup N] [--threads N] [--bf16] [--compile]
    step_torch.py --oracle FILE.safetensors      # compare loss and gradients with reference vectors

Reads birkhoff's YAML keys. Prints one line of JSON. Needs torch, numpy and PyYAML; birkhoff needs none of them.
"""
import argparse
import json
import struct
import sys
import time

import numpy as np
import torch
import yaml
from torch import nn

from model_torch import Model, Shape


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
             untie_embeddings_and_output_weights=not o["tied"], enable_mhc_connections=o.get("enable_hyper_connections"),
             mhc_num_residual_streams=o.get("num_residual_streams"), num_experts=o.get("num_moe_experts"))
    model = Model(Shape(o))
    model.load_state_dict({k[6:]: v for k, v in t.items() if k.startswith("param.")}, strict=True)
    mask = t["in.loss_mask"]
    loss, added = model(t["in.tokens"].long(), t["in.labels"].long(), mask)
    (loss + added).backward()
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
    mask = torch.ones(s.batch, s.seq)
    wall, cpu = [], []
    for i in range(n_warmup + n_steps):
        tokens = torch.randint(0, s.vocab, (s.batch, s.seq + 1))
        start, start_cpu = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss, added = run(tokens[:, :-1], tokens[:, 1:], mask)
        (loss + added).backward()
        if clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        model.update_biases()
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
