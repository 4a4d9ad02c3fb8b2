#!/usr/bin/env bash
# The GPU's op tests under compute-sanitizer, a process per family and tool, in parallel. Needs a GPU and
# bazel-bin/tests/cuda/gpu_test, quantize_gpu_test and reduce_gpu_test. Ends with a line of counts; exit code 1 where one of our
# kernels is at fault.
set -euo pipefail

usage() {
  cat <<END
usage: scripts/sanitize.sh [TOOL...]
TOOL: memcheck, initcheck, racecheck, synccheck; all by default. From the environment:
  TESTS     folder of the test binaries (bazel-bin/tests/cuda)   OUT   folder of the logs (a new one)
  JOBS      processes at a time (half the cores)                 LIMIT seconds for each (300)
  FAMILY    a regular expression: these families alone, of attention, elementwise, embedding, gemm, ...
initcheck runs on memory that is not cleared (YM_TEST_RAW_MEMORY) and counts reads of our kernels alone: libraries
read padding of their own. It leaves out the wider model: there cuBLAS stores through the copy engine, which it does
not follow, and norms read what seems unwritten. racecheck and synccheck leave out attention and the GEMMs, whose asynchronous copies and
barriers they do not follow.
END
}

# Name and Catch2 test specification of each family; quantize-* are quantize_gpu_test's, reduce is reduce_gpu_test's, the
# others are gpu_test's.
families() {
  cat <<END
attention|attention:*
elementwise|add:*,copy:*,fill:*,gpu fill*
embedding|embedding*,gpu embedding*
gemm|gemm:*
rope|gqa rope: h*,mla rope pack: in*
grouped-gemm|grouped gemm: e*,grouped gemm: n*,grouped gemm: s*,grouped gemm: the*
cross-entropy|linear*,gpu: a target*
permute|permute*,gpu permute*
unpermute|unpermute*
pad-rows|pad rows*
rmsnorm|rmsnorm*
router|router:*,gpu router:*
router-balance|router balance*
router-capacity|router capacity*
swiglu|swiglu*
adamw|gpu adamw*
split|gpu split*
step|gpu norm*,gpu verdict*,gpu router bias*
mtp|gpu mtp*
model|gpu model: DeepSeek-V3 in odd*
model-even|gpu model: DeepSeek-V3 with the heads*
reduce|gpu reduce*
quantize-rows|quantize on the GPU: r*,quantize on the GPU: m*,quantize on the GPU: d*
quantize-exact|quantize on the GPU: e*
quantize-weights|quantize on the GPU: w*
quantize-fused|quantize on the GPU: f*
quantize-nvfp4|nvfp4*
quantize-adamw|adamw*
quantize-wire|wire rows*
quantize-gemm|recipe gemm*,scaled gemm*,weight gradients*
END
}

binary_of() {
  case $1 in
    quantize-*) echo "$TESTS/quantize_gpu_test" ;;
    reduce) echo "$TESTS/reduce_gpu_test" ;;
    *) echo "$TESTS/gpu_test" ;;
  esac
}

# one "TOOL|FAMILY|SPEC": a line with the verdict.
one() {
  local tool family spec log status=0 mine all
  IFS='|' read -r tool family spec <<<"$1"
  log=$OUT/$tool.$family.log
  [[ $tool == initcheck ]] && export YM_TEST_RAW_MEMORY=1
  timeout "$LIMIT" compute-sanitizer --tool "$tool" "$(binary_of "$family")" "$spec" >"$log" 2>&1 || status=$?
  all=$(grep -cE '^=+ (Uninitialized|Invalid|Error:|Warning:|Barrier|Divergent)' "$log" || true)
  mine=$(grep -A1 -E '^=+ (Uninitialized|Invalid|Error:|Warning:|Barrier|Divergent)' "$log" |
    grep -c yardmaster || true)
  if ((mine > 0)); then
    echo "FAIL $tool $family: $mine reports on our kernels, $all in all ($log)"
  elif ((status != 0)) || { ((all > 0)) && [[ $tool != initcheck ]]; }; then
    echo "FAIL $tool $family: exit code $status, $all reports ($log)"
  elif grep -q '^No tests ran' "$log"; then
    echo "FAIL $tool $family: no test is called $spec ($log)"
  else
    echo "ok   $tool $family ($all reports on libraries)"
  fi
}

main() {
  case ${1:-} in -h | --help) usage; exit 0 ;; esac
  local tools=("$@")
  ((${#tools[@]})) || tools=(memcheck initcheck racecheck synccheck)
  PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed" >&2; exit 2; }
  export TESTS=${TESTS:-bazel-bin/tests/cuda} LIMIT=${LIMIT:-300} OUT=${OUT:-$(mktemp -d)}
  export -f one binary_of
  local tool family binary
  while IFS='|' read -r family _; do
    binary=$(binary_of "$family")
    [[ -x $binary ]] || { echo "$binary is not there: bazel build //tests/cuda:${binary##*/}" >&2; exit 2; }
  done < <(families | grep -E "^(${FAMILY:-.*})\\|")
  # shellcheck disable=SC2016 # expanded by the inner shell
  for tool in "${tools[@]}"; do
    families | if [[ $tool == racecheck || $tool == synccheck ]]; then
      grep -vE '^(attention|gemm|grouped-gemm|quantize-gemm|model|model-even)\|'
    elif [[ $tool == initcheck ]]; then
      grep -v '^model-even|'
    else
      cat
    fi | grep -E "^(${FAMILY:-.*})\\|" | sed "s/^/$tool|/"
  done | tr '\n' '\0' | xargs -0 -P "${JOBS:-$((($(nproc) + 1) / 2))}" -I{} bash -c 'one "$1"' _ {} |
    tee "$OUT/summary.txt"
  echo "$(grep -c '^ok' "$OUT/summary.txt" || true) clean, $(grep -c '^FAIL' "$OUT/summary.txt" || true) not; logs in $OUT"
  ! grep -q '^FAIL' "$OUT/summary.txt"
}

main "$@"
