#!/usr/bin/env bash
# From nothing to a trained model: installs what is missing, builds, makes a data set of real
# text, trains, evaluates and saves. Run again, it resumes. Arguments go to `yardmaster train`.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

CONFIG=configs/tiny_deepseek_v3.yaml
DATA=data/default/text

usage() {
  cat <<END
usage: scripts/train.sh [-n RANKS] [ARG...]
Trains $CONFIG on the default data set. RANKS: 2 unless said, 1 on one GPU or one core. ARG goes to
yardmaster train:
  scripts/train.sh --set train.steps=100 --set run.dir=runs/try2
END
}

make_data() {
  local start=$EPOCHREALTIME list
  mkdir -p "$(dirname "$DATA")"
  list=$(dirname "$DATA")/files.txt
  scripts/default_dataset_files.sh >"$list.new"
  # The list, with sizes and times, says whether anything changed; hashing 25 MB would be slower.
  xargs -d '\n' stat -c '%n %s %Y' <"$list.new" >"$list.state.new"
  if [[ -f $DATA.train.bin && -f $DATA.train.idx && -f $DATA.heldout.bin && -f $DATA.heldout.idx ]]; then
    if cmp -s "$list.state.new" "$list.state"; then
      say "data: $DATA.* is there and its sources are unchanged ($(seconds_since "$start") s)"
    else
      # Made from other package versions. A run that began with it must go on with it.
      say "data: $DATA.* is there; its sources have changed since, and it is kept for runs that began with it"
      say "      a new one: rm -r $(dirname "$DATA"), then scripts/train.sh --set run.dir=runs/NEW"
    fi
    rm -f "$list.new" "$list.state.new"
    return 0
  fi
  say "data: $(wc -l <"$list.new") files of installed packages (scripts/default_dataset_files.sh)"
  # --force: what may lie there is incomplete, or it would have been kept above.
  bazel-bin/tools/yardmaster tokenize --force --out "$DATA" --file-list "$list.new"
  mv "$list.new" "$list"
  mv "$list.state.new" "$list.state" # last: it says that the rest is complete
}

main() {
  local ranks
  ranks=$(default_ranks)
  case ${1:-} in
    -h | --help) usage; exit 0 ;;
    -n) ranks=${2:-}; shift 2 || die "-n wants a number of ranks" ;;
  esac
  cd "$YM_ROOT"
  local start=$EPOCHREALTIME
  stage setup scripts/setup.sh
  stage build build //tools:yardmaster
  stage data make_data
  export YM_BUILT=1
  stage train scripts/run.sh -n "$ranks" train "$CONFIG" "$@"
  say "== all: $(seconds_since "$start") s"
}

main "$@"
