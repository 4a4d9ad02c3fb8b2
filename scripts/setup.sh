#!/usr/bin/env bash
# Installs what the build needs: compiler, Bazel, libraries, Open MPI. Safe to run again.
# Needs root or sudo only where something is missing. CUDA is never installed: with the
# toolkit (12.9 or later), cuDNN 9 and NCCL 2.28 on the machine, the build finds them.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/packages.sh
source "$(dirname "$0")/packages.sh"

usage() {
  cat <<END
usage: scripts/setup.sh
Installs the packages that the build needs (Debian 12, Ubuntu 24.04), or says that all are there.
END
}

# Fills `packages` and `missing`.
find_missing() {
  local id version_id state
  # shellcheck source=/dev/null
  id=$(. /etc/os-release && echo "${ID:-unknown}")
  # shellcheck source=/dev/null
  version_id=$(. /etc/os-release && echo "${VERSION_ID:-}")
  packages=$(ym_packages "$id" "$version_id") ||
    die "setup knows Debian 12 and Ubuntu 24.04, and this is $id $version_id" \
      "Install by hand what scripts/packages.sh lists, then build: bazel build //tools:yardmaster"
  # shellcheck disable=SC2086 # one package a word
  state=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' $packages 2>/dev/null || true)
  missing=$(comm -23 <(LC_ALL=C sort <<<"$packages") \
    <(sed -n 's/ installed$//p' <<<"$state" | LC_ALL=C sort -u))
}

# Prints the command that makes us root, nothing where we are; fails where we cannot be.
root_command() {
  if [[ $EUID -eq 0 ]]; then
    return 0
  fi
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    echo sudo
    return 0
  fi
  return 1
}

apt() {
  # shellcheck disable=SC2086 # $as_root is empty or one word
  $as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q "$@" </dev/null
}

update_lists() {
  # apt-get update returns 0 even where every source failed; --error-on=any makes it honest,
  # but one broken source of somebody else's must not stop us: the install decides.
  apt update --error-on=any >"$log" 2>&1 || {
    say "warning: apt-get update had errors (the last lines follow); going on with what it has"
    tail -n 5 "$log"
  }
}

# Says how much comes over the network and how much disk it takes.
announce() {
  local plan
  # shellcheck disable=SC2086
  plan=$(apt install --assume-no --no-install-recommends $missing 2>&1 || true)
  if grep -q 'Unable to locate package' <<<"$plan"; then
    return 1
  fi
  sed -n 's/^[0-9]* upgraded, \([0-9]*\) newly installed.*/   with what they need: \1 packages/p
          s/^Need to get \(.*\) of archives.*/   download: \1/p
          s/^After this operation, \(.*\) of additional disk space.*/   disk: \1/p' <<<"$plan"
}

install_missing() {
  # shellcheck disable=SC2086
  apt install -y --no-install-recommends $missing >"$log" 2>&1 && return 0
  tail -n 30 "$log" >&2
  die "apt-get install failed (the last lines are above)" \
    "By hand: apt-get update && apt-get install --no-install-recommends ${missing//$'\n'/ }"
}

# Bazel 4.2.3 dies on a JDK after 17 (it needs the security manager): point it at 17.
choose_jdk() {
  local file=$YM_ROOT/.bazelrc.jdk java major jdk
  java=$(command -v javac || true)
  if [[ -z $java ]]; then
    die "javac is not in PATH, though the JDK is installed" "Try: apt-get install --reinstall default-jdk-headless"
  fi
  major=$("$java" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
  if [[ -z ${JAVA_HOME:-} && ${major:-0} -le 17 ]]; then
    rm -f "$file"
    return 0
  fi
  for jdk in /usr/lib/jvm/java-17-openjdk-*; do
    if [[ -x $jdk/bin/javac ]]; then
      echo "startup --server_javabase=$jdk" >"$file.new"
      if ! cmp -s "$file.new" "$file"; then
        say "Bazel 4.2.3 starts on JDK 17 at most, the default here is ${JAVA_HOME:-JDK $major}: it uses $jdk (.bazelrc.jdk)"
      fi
      mv "$file.new" "$file"
      return 0
    fi
  done
  die "Bazel 4.2.3 starts on JDK 17 at most, the default here is ${JAVA_HOME:-JDK $major}" \
    "Install one: apt-get install openjdk-17-jdk-headless"
}

# Without it Open MPI asks a name server at every start, and waits 10 s where there is none.
check_localhost() {
  getent hosts localhost >/dev/null ||
    say "warning: localhost is not in /etc/hosts; add the line '127.0.0.1 localhost', or each mpirun takes 10 s to start"
}

main() {
  if (($#)); then
    usage
    [[ $1 == -h || $1 == --help ]] && exit 0 || exit 2
  fi
  local start=$EPOCHREALTIME packages missing as_root
  command -v dpkg-query >/dev/null || die "setup knows Debian 12 and Ubuntu 24.04; dpkg is not here"
  find_missing
  if [[ -n $missing ]]; then
    say "setup: $(wc -l <<<"$missing") of $(wc -l <<<"$packages") packages are missing: ${missing//$'\n'/ }"
    as_root=$(root_command) || die "neither root nor sudo, so nothing was installed" \
      "Ask for: apt-get install --no-install-recommends ${missing//$'\n'/ }"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # A fresh machine has no lists, and old lists name files that are gone from the mirror.
    stage "package lists" update_lists
    announce || die "this machine's package sources do not have all of: ${missing//$'\n'/ }" \
      "Debian: component main is enough. Ubuntu: enable universe (add-apt-repository universe)."
    stage "install" install_missing
  fi
  choose_jdk
  check_localhost
  say "setup: all $(wc -l <<<"$packages") packages are there ($(seconds_since "$start") s)"
}

main "$@"
