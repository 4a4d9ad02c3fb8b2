"""Libraries that the distribution installs, as Bazel targets: @system//:yaml_cpp and so on.

A library that is missing becomes a target that fails when it is built, naming
the package to install, so that targets which do not need it still build.
"""

def _multiarch(ctx):
    machine = ctx.execute(["uname", "-m"]).stdout.strip()
    return machine + "-linux-gnu"

def _first(ctx, candidates):
    for path in candidates:
        if ctx.path(path).exists:
            return path
    return None

def _missing(name, what, package):
    return """
genrule(
    name = "{name}_missing",
    outs = ["{name}_missing.h"],
    cmd = "echo 'ERROR: {what} was not found. Install it: scripts/setup.sh (package {package}).' >&2; exit 1",
)

cc_library(
    name = "{name}",
    hdrs = [":{name}_missing"],
)
""".format(name = name, what = what, package = package)

def _headers(name, defines = [], linkopts = []):
    return """
cc_library(
    name = "{name}",
    defines = {defines},
    linkopts = {linkopts},
)
""".format(name = name, defines = repr(defines), linkopts = repr(linkopts))

def _yaml_cpp(ctx, libdir):
    if not ctx.path("/usr/include/yaml-cpp/yaml.h").exists:
        return _missing("yaml_cpp", "yaml-cpp/yaml.h", "libyaml-cpp-dev")
    static = _first(ctx, [libdir + "/libyaml-cpp.a"])
    if not static:
        return _headers("yaml_cpp", linkopts = ["-lyaml-cpp"])
    ctx.symlink(static, "lib/libyaml-cpp.a")
    return """
cc_library(
    name = "yaml_cpp",
    srcs = ["lib/libyaml-cpp.a"],
)
"""

def _openblas(ctx, libdir):
    # The pthread build is named, not the alternatives link: the serial and OpenMP
    # builds can be installed beside it and would change the thread handling.
    include = _first(ctx, [libdir.replace("/usr/lib/", "/usr/include/") + "/openblas-pthread"])
    if not include:
        return _missing("openblas", "cblas.h of OpenBLAS", "libopenblas-dev")
    ctx.symlink(include, "openblas")
    static = _first(ctx, [libdir + "/openblas-pthread/libopenblas.a"])
    if static:
        ctx.symlink(static, "lib/libopenblas.a")
    return """
cc_library(
    name = "openblas",
    srcs = {srcs},
    hdrs = glob(["openblas/*.h"]),
    includes = ["openblas"],
    linkopts = {linkopts},
)
""".format(
        srcs = repr(["lib/libopenblas.a"] if static else []),
        linkopts = repr(["-lpthread", "-lm"] if static else ["-L%s/openblas-pthread" % libdir, "-lopenblas"]),
    )

def _mpi(ctx, libdir):
    root = _first(ctx, [libdir + "/openmpi"])
    if not root or not ctx.path(root + "/include/mpi.h").exists:
        return _missing("mpi", "mpi.h of Open MPI", "libopenmpi-dev")
    ctx.symlink(root + "/include", "openmpi")

    # OMPI_SKIP_MPICXX: the C++ bindings were removed from the standard and do not
    # compile cleanly as C++20.
    return """
cc_library(
    name = "mpi",
    hdrs = glob(["openmpi/*.h"]),
    defines = ["OMPI_SKIP_MPICXX"],
    includes = ["openmpi"],
    linkopts = ["-L{root}/lib", "-lmpi"],
)
""".format(root = root)

def _spdlog(ctx):
    if not ctx.path("/usr/include/spdlog/spdlog.h").exists:
        return _missing("spdlog", "spdlog/spdlog.h", "libspdlog-dev")
    if not ctx.path("/usr/include/fmt/format.h").exists:
        return _missing("spdlog", "fmt/format.h", "libfmt-dev")

    # Neither has a static library, and a shared one would tie the binary to the
    # distribution's exact version.
    return _headers(
        "spdlog",
        defines = ["SPDLOG_HEADER_ONLY", "SPDLOG_FMT_EXTERNAL", "FMT_HEADER_ONLY"],
        linkopts = ["-lpthread"],
    )

def _header_only(ctx, name, header, package):
    if not ctx.path("/usr/include/" + header).exists:
        return _missing(name, header, package)
    return _headers(name)

def _catch2(ctx, libdir):
    # tests/catch.h hides the difference between 2.x (one header) and 3.x (a library).
    if ctx.path("/usr/include/catch2/catch_all.hpp").exists:
        return _headers("catch2", linkopts = ["-lCatch2"])
    return _header_only(ctx, "catch2", "catch2/catch.hpp", "catch2")

def _warnings_as_errors(ctx):
    """-Werror with the compiler that the project is checked with; another one has other warnings."""
    version = ctx.execute(["g++", "-dumpversion"]).stdout.strip()
    return ["-Werror"] if version.split(".")[0] == "12" else []

def _system_libs_impl(ctx):
    libdir = "/usr/lib/" + _multiarch(ctx)
    parts = [
        "package(default_visibility = [\"//visibility:public\"])\n",
        _yaml_cpp(ctx, libdir),
        _openblas(ctx, libdir),
        _mpi(ctx, libdir),
        _spdlog(ctx),
        _header_only(ctx, "cli11", "CLI/CLI.hpp", "libcli11-dev"),
        _header_only(ctx, "nlohmann_json", "nlohmann/json.hpp", "nlohmann-json3-dev"),
        _catch2(ctx, libdir),
    ]
    ctx.file("BUILD", "".join(parts))
    ctx.file("defs.bzl", "WERROR = %r\n" % _warnings_as_errors(ctx))

system_libs = repository_rule(
    implementation = _system_libs_impl,
    local = True,
    configure = True,
)
