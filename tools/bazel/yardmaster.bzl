"""The rules that every BUILD file of the project uses. tools/bazel/README.md shows each in use."""

load("@cuda//:defs.bzl", "CUDA_FOUND", "CUDA_HOME", "CUDA_INCLUDES", "CUDA_STATUS")
load("@system//:defs.bzl", "WERROR")

# -ffp-contract=off: a multiply and an add are fused only where the code says so (std::fma),
# so the same formula gives the same bits wherever the compiler inlines it.
# The two -fno flags and the vectoriser change speed, not results; there is no -ffast-math.
_COPTS = [
    "-Wall",
    "-Wextra",
] + WERROR + [
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ftree-vectorize",
    "-fvect-cost-model=dynamic",
    "-DYM_HAVE_CUDA=%d" % (1 if CUDA_FOUND else 0),
] + select({
    # AVX2 and FMA: every server and nearly every desktop chip since 2013.
    # //tools/bazel:cpu_check says so at start where they are missing.
    "@platforms//cpu:x86_64": ["-march=x86-64-v3"],
    "//conditions:default": [],
})

def if_cuda(then, otherwise = []):
    """`then` where the CUDA toolkit was found, else `otherwise`: for srcs and deps."""
    return then if CUDA_FOUND else otherwise

def ym_library(name, hdrs = [], srcs = [], deps = [], copts = [], **kwargs):
    """A cc_library with the project's flags. Sees YM_HAVE_CUDA as 0 or 1."""
    native.cc_library(
        name = name,
        hdrs = hdrs,
        srcs = srcs,
        deps = deps,
        copts = _COPTS + copts,
        linkstatic = True,  # one object file each; no shared library beside it
        **kwargs
    )

def ym_binary(name, srcs, deps = [], copts = [], **kwargs):
    """A cc_binary that knows its commit, and `name`_unstamped for tests.

    Tests use the unstamped one: it is the same program without the commit, so a commit that
    changes nothing they see does not run them again.
    """
    ym_library(
        name = name + "_main",
        srcs = srcs,
        deps = deps,
        copts = copts,
        alwayslink = True,  # nothing refers to main()
    )
    for suffix, version, arguments in [
        ("", "//tools/bazel:version_stamped", kwargs),
        ("_unstamped", "//tools/bazel:version_unstamped", dict(
            kwargs,
            testonly = True,
            visibility = ["//visibility:public"],
        )),
    ]:
        native.cc_binary(
            name = name + suffix,
            deps = [":%s_main" % name, version, "//tools/bazel:cpu_check"],
            **arguments
        )

def _test_args(deps, copts):
    return dict(
        deps = deps + ["//tests:catch_main"],
        copts = _COPTS + copts,
        linkstatic = True,
    )

def ym_test(name, srcs, deps = [], copts = [], data = [], size = "small", tags = [], args = [], **kwargs):
    """A Catch2 test; include "tests/catch.h". //tests:catch_main brings main()."""
    native.cc_test(
        name = name,
        srcs = srcs,
        data = data,
        size = size,
        tags = tags,
        args = args,
        **dict(kwargs, **_test_args(deps, copts))
    )

def ym_mpi_test(name, srcs, ranks, deps = [], copts = [], data = [], size = "small", tags = [], args = [], **kwargs):
    """A Catch2 test that runs as `ranks` MPI processes. Every rank runs every test case."""
    native.cc_binary(
        name = name + "_ranks",
        srcs = srcs,
        data = data,
        testonly = True,
        **_test_args(deps, copts)
    )
    native.sh_test(
        name = name,
        srcs = ["//tools/bazel:mpi_test.sh"],
        args = [str(ranks), "$(rootpath :%s_ranks)" % name] + args,
        data = [":%s_ranks" % name] + data,
        size = size,
        # Ranks spin while they wait; beside other tests they would starve them.
        tags = tags + ["mpi", "exclusive"],
        **kwargs
    )

# The exact architectures of each kind of file. "a" and "f" targets have instructions (wgmma,
# tcgen05) that no other chip runs; the compute_80 PTX lets later chips run the portable ones.
_GENCODE = {
    "portable": [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_100f,code=sm_100f",
        "-gencode=arch=compute_80,code=compute_80",
    ],
    "hopper": ["-gencode=arch=compute_90a,code=sm_90a"],
    "blackwell": ["-gencode=arch=compute_100f,code=sm_100f"],
}

def _nvcc_object_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".o")
    headers = depset(ctx.files.hdrs, transitive = [
        dep[CcInfo].compilation_context.headers
        for dep in ctx.attr.deps
    ])
    args = ctx.actions.args()
    args.add_all(["-std=c++20", "-O3", "-c", "-ccbin", "/usr/bin/g++", "-I."])
    for include in CUDA_INCLUDES:
        args.add_all(["-isystem", include])
    args.add_all(["-isystem", CUDA_HOME + "/include/cccl"])
    args.add_all(["--expt-relaxed-constexpr", "-Xcompiler=-Wall,-fPIC", "-Werror=all-warnings"])
    args.add_all(_GENCODE[ctx.attr.archs])
    args.add_all(ctx.attr.copts)
    args.add(ctx.file.src)
    args.add("-o", out)
    ctx.actions.run(
        executable = CUDA_HOME + "/bin/nvcc",
        arguments = [args],
        inputs = depset([ctx.file.src], transitive = [headers]),
        outputs = [out],
        # CUDA_STATUS names the versions: another toolkit in the same place compiles again.
        env = {"PATH": "/usr/bin:/bin", "YM_TOOLKIT": CUDA_STATUS},
        mnemonic = "Nvcc",
        progress_message = "Compiling %s (%s)" % (ctx.file.src.short_path, ctx.attr.archs),
    )
    return [DefaultInfo(files = depset([out]))]

_nvcc_object = rule(
    implementation = _nvcc_object_impl,
    attrs = {
        "archs": attr.string(values = _GENCODE.keys()),
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = True),
        "src": attr.label(allow_single_file = [".cu"]),
    },
)

def ym_cuda_library(name, srcs = [], hdrs = [], archs = "portable", deps = [], copts = [], **kwargs):
    """CUDA kernels. Without the toolkit an empty library, so callers test YM_HAVE_CUDA.

    archs: "portable" (sm_80, sm_90a, sm_100f and compute_80 PTX), "hopper" (sm_90a) or
    "blackwell" (sm_100f).
    """
    objects = []
    if CUDA_FOUND:
        for src in srcs:
            target = name + "_" + src.replace("/", "_").replace(".", "_")
            _nvcc_object(
                name = target,
                src = src,
                hdrs = hdrs,
                deps = deps,
                archs = archs,
                copts = copts,
            )
            objects.append(":" + target)
    native.cc_library(
        name = name,
        srcs = objects,
        hdrs = hdrs,
        deps = deps + (["@cuda//:cuda"] if CUDA_FOUND else []),
        linkstatic = True,
        **kwargs
    )
