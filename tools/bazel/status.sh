#!/usr/bin/env bash
# Tells Bazel the commit. STABLE_: a new commit rebuilds what is stamped, and only that.
set -euo pipefail

cd "$(dirname "$0")/../.."
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
if [[ $commit != unknown ]] && ! GIT_OPTIONAL_LOCKS=0 git diff --quiet HEAD -- 2>/dev/null; then
  commit+="+changes"
fi
echo "STABLE_YM_COMMIT $commit"
