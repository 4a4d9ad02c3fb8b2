# Sourced by setup.sh: what the build needs, by distribution.
# shellcheck shell=bash

# Prints the packages, one a line. $1 is ID and $2 VERSION_ID of /etc/os-release.
ym_packages() {
  local common=(
    # Build: the compiler, Bazel 4.2.3 and the rules that it would fetch from the network.
    g++ git ca-certificates
    bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto
    # Libraries; CPU GEMMs are OpenBLAS's.
    libyaml-cpp-dev libopenblas-pthread-dev libopenmpi-dev libspdlog-dev libfmt-dev
    libcli11-dev nlohmann-json3-dev zlib1g-dev
    # To run on several ranks, and to test.
    openmpi-bin catch2
  )
  case "$1-$2" in
    debian-12) printf '%s\n' "${common[@]}" ;;
    # Its default JDK is 21, and Bazel 4.2.3 starts on 17 at most.
    ubuntu-24.04) printf '%s\n' "${common[@]}" openjdk-17-jdk-headless ;;
    *) return 1 ;;
  esac
}
