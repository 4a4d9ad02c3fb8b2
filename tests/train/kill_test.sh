#!/usr/bin/env bash
# kill -9 of a random rank at a random moment, again and again: kill_test.sh TIMES
# All ranks end within the deadline, each start resumes from a committed checkpoint (or anew, where there is none
# yet), and the final state is that of a run that nobody disturbed.
set -euo pipefail

readonly TIMES=${1:-3} RANKS=2 DEADLINE=20
readonly MAIN=$PWD/tools/yardmaster_unstamped
# The moments are random, the test is not: the same seed gives the same choices.
readonly SEED=${YM_KILL_SEED:-20260101}
RANDOM=$((SEED % 32768))

export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader OMPI_MCA_plm=isolated
if [[ $(id -u) -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
work=$(mktemp -d /tmp/ym_kill.XXXXXX)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
cp -r tests/train/kill_test.yaml "$work/"
cd "$work"

fail() {
  echo "FAILED: $*" >&2
  tail -n 25 "$work"/*.log >&2
  exit 1
}

mkdir text
for i in $(seq 12); do
  for j in $(seq 120); do
    case $(((i * 7919 + j * 104729 + i * j) % 5)) in
      0) echo -n "router " ;; 1) echo -n "expert " ;; 2) echo -n "token " ;; 3) echo -n "of " ;; *) echo -n "combine " ;;
    esac
  done >"text/doc$i.txt"
done
"$MAIN" tokenize --out "$work/text" --heldout-fraction 0.2 text >/dev/null

launch() { # run.dir
  exec mpirun -n $RANKS --oversubscribe --bind-to none "$MAIN" train kill_test.yaml --set run.dir="$1" \
    --set train.steps="$steps"
}

steps=$((60 * TIMES))
(launch straight) >straight.log 2>&1 || fail "the straight run"
grep -q 'state sha256' straight.log || fail "no hash in the straight run"

lines() { if [[ -f killed/metrics.jsonl ]]; then wc -l <killed/metrics.jsonl; else echo 0; fi; }

children() { # of a process
  grep -lsx "PPid:[[:space:]]*$1" /proc/[0-9]*/status | cut -d/ -f3
}

committed() { # the steps of committed checkpoints
  local dir
  for dir in killed/checkpoints/step_*; do
    [[ -f $dir/manifest.json ]] && echo $((10#${dir##*step_}))
  done
  return 0
}

for ((kill_number = 1; kill_number <= TIMES; ++kill_number)); do
  before=$(committed)
  (launch killed) >kill.log 2>&1 &
  job=$!
  # Every fourth kill comes at some moment of the start; the others after some more steps, then a little later still,
  # so that they meet steps and saves alike.
  if ((kill_number % 4 == 0)); then
    for ((wait = 0; wait < 600; ++wait)); do
      mapfile -t ranks < <(children $job)
      ((${#ranks[@]} == RANKS)) && break
      sleep 0.02
    done
    delay=$(printf '0.%03d' $((RANDOM % 1000)))
    moment="$delay s after the ranks were there"
    sleep "$delay"
  else
    target=$(($(lines) + 1 + RANDOM % 40))
    # A step that was metered before the last kill is cut off at the resume: wait for growth beyond it.
    for ((wait = 0; wait < 600; ++wait)); do
      (($(lines) >= target)) && break
      kill -0 $job 2>/dev/null || break
      sleep 0.02
    done
    moment="at step $(lines)"
    sleep "0.0$(printf '%02d' $((RANDOM % 100)))"
  fi
  mapfile -t ranks < <(children $job)
  if ((${#ranks[@]})); then
    victim=${ranks[$((RANDOM % ${#ranks[@]}))]}
    kill -9 "$victim" 2>/dev/null || true
    echo "kill $kill_number: process $victim of ${#ranks[@]}, $moment"
  else
    echo "kill $kill_number: no rank was there, $moment"
    kill -9 $job 2>/dev/null || true
  fi
  # mpirun may be gone a moment before the last rank is.
  for ((wait = 0; wait < DEADLINE * 20; ++wait)); do
    kill -0 $job "${ranks[@]}" 2>/dev/null || break # true as long as any of them is there
    sleep 0.05
  done
  ! kill -0 $job 2>/dev/null || { kill -9 $job; fail "mpirun was still there $DEADLINE s after kill $kill_number"; }
  for pid in "${ranks[@]}"; do
    ! kill -0 "$pid" 2>/dev/null || fail "rank process $pid was still there $DEADLINE s after kill $kill_number"
  done
  if wait $job; then
    echo "  (the run had ended already)"
  fi
  if grep -q 'resume       from step' kill.log; then
    from=$(sed -n 's/.*resume       from step \([0-9]*\):.*/\1/p' kill.log | head -n 1)
    grep -qx "$from" <<<"$before" || fail "resumed from step $from, which was not committed: $before"
  fi
done

(launch killed) >last.log 2>&1 || fail "the last start"
grep -q 'resume       from step' last.log || fail "the last start did not resume"
[[ $(sed -n 's/.*state sha256//p' last.log) == $(sed -n 's/.*state sha256//p' straight.log) ]] || fail "the state differs"
seen=$(sed -n 's/^{"step":\([0-9]*\),"tokens":[0-9]*,"loss".*/\1/p' killed/metrics.jsonl)
[[ $seen == $(seq "$steps") ]] || fail "metrics.jsonl does not have each step once"
echo "ok: $TIMES kills, $steps steps, the state is that of the straight run"
