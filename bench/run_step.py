#!/usr/bin/env python3
"""Times one training step of birkhoff and of its peers in one run, and prints a table and JSON.

    bench/run_step.py [--build DIR] [--python PATH] [--threads N] [--steps N] [--only WORD] [--json FILE]

--build   folder of the build that holds bench/bench_step (build/release)
--python  an interpreter that has torch, numpy and PyYAML; without torch the peer's columns stay empty
--only    cases whose name contains WORD

The engines take turns, --rounds times each, and the best step of each counts. Besides tokens per second of
the clock there are tokens per second of processor time, times the threads: on a machine that does other work
too, that is what the step would reach alone. Floors: see NOTES.md.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TINY = ["--config", os.path.join(ROOT, "configs/tiny.yaml")]
GPT2 = ["--config", os.path.join(ROOT, "configs/gpt2_124m_mhc.yaml")]


def cases():
    out = []
    for name, base in (("tiny", TINY),
                       ("gpt2-124m 4x256", GPT2 + ["--seq_length", "256", "--micro_batch_size", "4"]),
                       ("gpt2-124m 8x128", GPT2 + ["--seq_length", "128", "--micro_batch_size", "8"])):
        batch = ["--global_batch_size", base[base.index("--micro_batch_size") + 1]] if name != "tiny" else []
        for streams in (0, 4):
            mhc = ["--enable_mhc_connections", "true" if streams else "false"]
            if name == "tiny" and not streams:
                mhc += ["--mtp_num_layers", "0"]  # which the peer has with hyper-connections alone
            out.append((f"{name} " + (f"n={streams}" if streams else "off"), base + batch + mhc))
    return out


def run_json(command, env):
    """The JSON object on the last line of a command, or None, with the reason on the error stream."""
    p = subprocess.run(command, env=env, capture_output=True, text=True)
    if p.returncode == 0:
        return json.loads(p.stdout.strip().splitlines()[-1])
    print("run_step: " + (p.stderr.strip().splitlines() or ["no message"])[-1], file=sys.stderr)
    return None


def better(a, b):
    """Fastest of two results of one engine: each figure by itself."""
    if not a or not b:
        return a or b
    return {**b, **{k: max(a[k], b[k]) for k in ("tokens_per_s", "tokens_per_cpu_s")}}


def floor(r, peaks):
    """Tokens per second that the measured peaks allow: products at the FMA peak, then the streams' bytes."""
    seconds = 2 * r["least_madds_per_token"] / peaks["fma_flops"] + r["stream_bytes_per_token"] / peaks["copy_bytes"]
    return 1 / seconds


def has_torch(a):
    has = subprocess.run([a.python, "-c", "import torch, numpy, yaml"], capture_output=True).returncode == 0
    if not has:
        print(f"run_step: {a.python} has no torch, numpy and yaml: the peer is left out", file=sys.stderr)
    return has


def measure(a, env, has_peer, name, options):
    n = str(a.steps if "tiny" not in name else 5 * a.steps)
    flags = options + ["--steps", n, "--warmup", "2"]
    torch = [a.python, os.path.join(ROOT, "bench/peers/step_torch.py"), "--threads", str(a.threads)] + flags
    engines = {"ours": [os.path.join(a.build, "bench/bench_step")] + flags}
    if has_peer:
        engines["torch"] = torch
        if not a.no_bf16:
            engines["torch_bf16"] = torch + ["--bf16"]
        if a.compile:
            engines["torch_compiled"] = torch + ["--compile"]
    result = {}
    for _ in range(a.rounds):
        for engine, command in engines.items():
            result[engine] = better(result.get(engine), run_json(command, env))
    return result


def row(name, r, peaks, threads):
    def speed(engine, key="tokens_per_s", factor=1):
        return r[engine][key] * factor if r.get(engine) else None

    def text(x, form="10.0f"):
        return format(x, form) if x is not None else format("-", ">" + form.split(".")[0])

    def ratio(x, y):
        return x / y if x and y else None

    ours, ours_cpu = speed("ours"), speed("ours", "tokens_per_cpu_s", threads)
    torch, torch_cpu = speed("torch"), speed("torch", "tokens_per_cpu_s", threads)
    f = floor(r["ours"], peaks)
    return "".join([f"{name:22}", text(ours), text(torch), text(ratio(ours, torch), "7.2f"), text(ours_cpu),
                    text(torch_cpu), text(ratio(ours_cpu, torch_cpu), "7.2f"), text(speed("torch_bf16")),
                    text(speed("torch_compiled")), text(f), text(100 * ours_cpu / f, "7.0f") + "%"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--only", default="")
    p.add_argument("--compile", action="store_true", help="time the peer through torch.compile too")
    p.add_argument("--no-bf16", action="store_true", help="where it has no instructions a step takes minutes")
    p.add_argument("--json")
    a = p.parse_args()
    env = {**os.environ, "OMP_NUM_THREADS": str(a.threads)}
    has_peer = has_torch(a)
    machine = run_json([os.path.join(a.build, "bench/bench_step"), "--steps", "1", "--peaks"], env)
    if not machine:
        sys.exit("run_step: build the target bench_step first: cmake --build build/release")
    peaks = {k: machine[k] for k in ("fma_flops", "copy_bytes")}
    print(f"{a.threads} threads: {peaks['fma_flops'] / 1e9:.0f} GFLOP/s of fp32 FMA, "
          f"{peaks['copy_bytes'] / 1e9:.0f} GB/s copied. Tokens per second:\n")
    print(f"{'':22}{'---- by the clock ----':>27}{'-- by processor time --':>27}{'torch':>10}{'torch':>10}")
    print(f"{'case':22}{'ours':>10}{'torch':>10}{'ratio':>7}{'ours':>10}{'torch':>10}{'ratio':>7}{'bf16':>10}"
          f"{'compiled':>10}{'floor':>10}{'share':>8}", flush=True)
    results = {}
    for name, options in cases():
        if a.only not in name:
            continue
        r = measure(a, env, has_peer, name, options)
        if not r.get("ours"):
            sys.exit(1)
        results[name] = r
        print(row(name, r, peaks, a.threads), flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"peaks": peaks, "cases": results}, f, indent=1)


if __name__ == "__main__":
    main()
