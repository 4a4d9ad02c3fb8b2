"""Finds the CUDA toolkit, cuDNN and NCCL: @cuda//:cuda and @cuda//:defs.bzl.

defs.bzl holds CUDA_FOUND (bool), CUDA_STATUS (one sentence) and what the
compile rule needs. Anything missing or too old means a CPU-only build.
YM_CUDA=off (bazel build --config=cpu) asks for a CPU-only build;
CUDA_HOME, CUDNN_HOME and NCCL_HOME override where to look.
"""

_MIN_CUDA = 12090
_MIN_CUDNN = 9
_MIN_NCCL = 22800

def _define(ctx, header, name):
    """The integer that `header` defines as `name`, or None."""
    for line in ctx.read(header).split("\n"):
        words = [w for w in line.replace("\t", " ").split(" ") if w]
        if len(words) >= 3 and words[0] == "#define" and words[1] == name and words[2].isdigit():
            return int(words[2])
    return None

def _find(ctx, roots, subdirs, name):
    for root in roots:
        for sub in subdirs:
            path = "%s/%s/%s" % (root, sub, name)
            if ctx.path(path).exists:
                return path
    return None

def _dirname(path):
    return path.rpartition("/")[0]

def _probe(ctx):
    """Returns (facts, None) or (None, the sentence that says what is missing)."""
    env = ctx.os.environ
    if env.get("YM_CUDA", "auto") == "off":
        return None, "CUDA is switched off (YM_CUDA=off)"
    homes = [h for h in [env.get("CUDA_HOME"), env.get("CUDA_PATH"), "/usr/local/cuda"] if h]
    nvcc = _find(ctx, homes, ["bin"], "nvcc")
    if not nvcc:
        return None, "no CUDA toolkit: nvcc is not in " + ", ".join([h + "/bin" for h in homes])
    home = _dirname(_dirname(nvcc))
    header = home + "/include/cuda.h"
    version = _define(ctx, header, "CUDA_VERSION") if ctx.path(header).exists else None
    if not version:
        return None, "no CUDA_VERSION in " + header
    text = "%d.%d" % (version // 1000, version % 1000 // 10)
    if version < _MIN_CUDA:
        return None, "CUDA %s in %s is too old, 12.9 is the oldest that works" % (text, home)

    arch = ctx.execute(["uname", "-m"]).stdout.strip()
    includes = ["include", "include/%s-linux-gnu" % arch]
    libs = ["lib64", "lib", "lib/%s-linux-gnu" % arch]
    found = {"home": home, "cuda": text, "include": [home + "/include"], "lib": [home + "/lib64"]}
    for lib in ["libcudart_static.a", "libcublas.so", "libcublasLt.so"]:
        path = _find(ctx, [home], libs, lib)
        if not path:
            return None, "%s is not in %s/lib64" % (lib, home)
        found["lib"].append(_dirname(path))

    def_headers = [
        ("cuDNN", "CUDNN_HOME", "cudnn_version.h", "libcudnn.so"),
        ("NCCL", "NCCL_HOME", "nccl.h", "libnccl.so"),
    ]
    for name, variable, header_name, lib in def_headers:
        roots = [r for r in [env.get(variable), home, "/usr/local", "/usr"] if r]
        header = _find(ctx, roots, includes, header_name)
        path = _find(ctx, roots, libs, lib)
        if not header or not path:
            return None, "no %s: %s is not in %s (set %s)" % (
                name,
                lib if header else header_name,
                ", ".join(roots),
                variable,
            )
        found["include"].append(_dirname(header))
        found["lib"].append(_dirname(path))
        if name == "cuDNN":
            cudnn = _define(ctx, header, "CUDNN_MAJOR")
            if not cudnn or cudnn < _MIN_CUDNN:
                return None, "cuDNN %s (%s) is too old, 9 is the oldest that works" % (cudnn, header)
            found["cudnn"] = "%s.%s" % (cudnn, _define(ctx, header, "CUDNN_MINOR"))
        else:
            major = _define(ctx, header, "NCCL_MAJOR")
            minor = _define(ctx, header, "NCCL_MINOR")
            if not major or major * 10000 + minor * 100 < _MIN_NCCL:
                return None, "NCCL %s.%s (%s) is too old, 2.28 is the oldest that works" % (major, minor, header)
            found["nccl"] = "%d.%d" % (major, minor)
    return found, None

def _unique(items):
    out = []
    for item in items:
        if item not in out:
            out.append(item)
    return out

def _headers(ctx, found):
    """Links each include folder into the repository, since Bazel accepts no header from outside."""
    includes = []
    for i, path in enumerate(_unique(found["include"])):
        if path in ["/usr/include", "/usr/local/include"]:
            continue  # the compiler looks there by itself
        name = "include%d" % i
        ctx.symlink(path, name)
        includes.append(name)
    return includes

_BUILD = """
package(default_visibility = ["//visibility:public"])

# cccl has thousands of files, each of which would be linked into every sandbox:
# host code that wants <cuda/std/...> asks for :cccl by name. nvcc finds it itself.
cc_library(
    name = "headers",
    hdrs = glob([p for i in {includes} for p in [
        i + "/*.h",
        i + "/*.hpp",
        i + "/crt/**",
        i + "/cooperative_groups/**",
        i + "/nccl_device/**",
        i + "/nvtx3/**",
    ]]),
    includes = {includes},
)

cc_library(
    name = "cccl",
    hdrs = glob(["include0/cccl/**"]),
    includes = ["include0/cccl"],
    deps = [":headers"],
)

# The runtime is static. libcuda is never linked: the driver's functions are looked up
# at run time (cudaGetDriverEntryPoint), so that the binary starts where there is no driver.
cc_library(
    name = "cuda",
    linkopts = {linkopts},
    deps = [":headers"],
)
"""

_DEFS = """# Written by tools/bazel/cuda_toolkit.bzl.
CUDA_FOUND = {found}
CUDA_STATUS = {status}
CUDA_HOME = {home}
CUDA_INCLUDES = {includes}
"""

def _cuda_toolkit_impl(ctx):
    found, why = _probe(ctx)
    if not found:
        # Said once for each fetch; the product says it again when it starts.
        print("CPU-only build: " + why)  # buildifier: disable=print
        ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])
[cc_library(name = n) for n in ["cuda", "cccl", "headers"]]
""")
        ctx.file("defs.bzl", _DEFS.format(found = False, status = repr("CPU-only build: " + why), home = repr(""), includes = []))
        return

    lib_dirs = _unique(found["lib"])
    linkopts = ["-L" + d for d in lib_dirs] + ["-Wl,-rpath," + d for d in lib_dirs] + [
        "-Wl,--as-needed",
        "-lcudnn",
        "-lnccl",
        "-lcublasLt",
        "-lcublas",
        "-lcudart_static",
        "-ldl",
        "-lrt",
        "-lpthread",
    ]
    includes = _headers(ctx, found)
    ctx.file("BUILD", _BUILD.format(includes = repr(includes), linkopts = repr(linkopts)))
    ctx.file("defs.bzl", _DEFS.format(
        found = True,
        status = repr("CUDA %s, cuDNN %s, NCCL %s (%s)" % (found["cuda"], found["cudnn"], found["nccl"], found["home"])),
        home = repr(found["home"]),
        includes = repr(_unique(found["include"])),
    ))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    local = True,
    configure = True,
    environ = ["YM_CUDA", "CUDA_HOME", "CUDA_PATH", "CUDNN_HOME", "NCCL_HOME"],
)
