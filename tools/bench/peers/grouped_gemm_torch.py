# Our grouped GEMM beside torch._grouped_mm and a loop of dense products, alternating, in one process.
#   python3 grouped_gemm_torch.py libgrouped_gemm.so
# grouped_gemm_shim.cu says how the library is built. Ratio: median over the pairs of torch time / our time.
import argparse
import ctypes
import os

parser = argparse.ArgumentParser(description="Our grouped GEMM beside torch's, in one process, on a Hopper GPU.")
parser.add_argument("library", help="libgrouped_gemm.so (grouped_gemm_shim.cu says how it is built)")
args = parser.parse_args()  # before torch, which may not be there

import torch

lib = ctypes.CDLL(os.path.abspath(args.library))  # a name alone is looked for in the system
ROWS, PAIRS = 32768, 9
bf16 = dict(device="cuda", dtype=torch.bfloat16)


def ours(name, n, k, a, b, offsets, out):
    p = ctypes.c_void_p
    status = getattr(lib, name)(ctypes.c_int64(ROWS), offsets.numel() - 1, n, k, p(a.data_ptr()), p(b.data_ptr()),
                                p(offsets.data_ptr()), p(out.data_ptr()), p(torch.cuda.current_stream().cuda_stream))
    assert status == 0, (name, status)


def paired(first, second):
    for _ in range(2):
        first(), second()
    times = []
    for i in range(PAIRS):
        e = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        pair = (first, second) if i % 2 == 0 else (second, first)
        e[0].record(), pair[0](), e[1].record(), pair[1](), e[2].record()
        torch.cuda.synchronize()
        a, b = e[0].elapsed_time(e[1]), e[1].elapsed_time(e[2])
        times.append((a, b) if i % 2 == 0 else (b, a))
    median = lambda v: sorted(v)[len(v) // 2]
    return median([t[0] for t in times]), median([t[1] for t in times]), median([t[1] / t[0] for t in times])


def error(a, b):
    return ((a.float() - b.float()).norm() / b.float().norm()).item()


print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {ROWS} rows, multinomial routing")
print(f"{'shape':8} {'op':10} {'E':>3} {'ours ms':>8} {'torch ms':>8} {'ratio':>6}  {'difference':>10}")
for shape, n, k in (("gate+up", 4096, 7168), ("down", 7168, 2048)):
    for experts in (4, 8, 32):
        torch.manual_seed(experts)
        counts = torch.multinomial(torch.ones(experts), ROWS, replacement=True).bincount(minlength=experts)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).cuda()
        ends = offsets[1:].int()
        host = offsets.tolist()
        x, dy = torch.randn(ROWS, k, **bf16), torch.randn(ROWS, n, **bf16)
        w = torch.randn(experts, n, k, **bf16) * 0.02
        y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)
        grouped = torch._grouped_mm
        loop = lambda: torch.cat([x[s:t] @ w[e].t() for e, (s, t) in enumerate(zip(host, host[1:]))])
        cases = (
            ("forward", lambda: ours("ym_forward", n, k, x, w, offsets, y), lambda: grouped(x, w.transpose(-2, -1), offs=ends), y),
            ("dgrad", lambda: ours("ym_dgrad", n, k, dy, w, offsets, dx), lambda: grouped(dy, w, offs=ends), dx),
            ("wgrad bf16", lambda: ours("ym_wgrad_bf16", n, k, dy, x, offsets, dw), lambda: grouped(dy.t(), x, offs=ends), dw),
            ("fwd loop", lambda: ours("ym_forward", n, k, x, w, offsets, y), loop, y),
        )
        for name, mine, theirs, out in cases:
            t1, t2, ratio = paired(mine, theirs)
            mine()
            print(f"{shape:8} {name:10} {experts:3} {t1:8.3f} {t2:8.3f} {ratio:6.3f}  {error(out, theirs()):10.2e}", flush=True)
        del x, dy, w, y, dx, dw
