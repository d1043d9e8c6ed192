# Sourced by ci/quickstart and ci/test: makes the machine ready to run wmlce.
#   bootstrap NEED...   NEED: build, test (first column of ci/debian-packages.txt)
# Afterwards the tool environment is in $TOOLS (build/tools is a link to it) and $WMLCE runs the tool.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$ROOT/build
LOGS=$BUILD/logs
TOOLS=$BUILD/tools
CACHE=${WMLCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wmlce}
STARTED=$SECONDS
WAIT_LIMIT_S=1800
export PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1

say() { printf '%s\n' "$*"; }

fail() { # WHAT REMEDY
  printf '\nerror: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf 'remedy: %s\n' "$2" >&2
  exit 1
}

elapsed() { printf '%d:%02d' $(((SECONDS - STARTED) / 60)) $(((SECONDS - STARTED) % 60)); }

# step TITLE LOG COMMAND...: runs COMMAND with its output in LOG and says every 15 s that it is still at work.
step() {
  local title=$1 log=$2 begin=$SECONDS pid rc=0 next
  shift 2
  mkdir -p "$(dirname "$log")"
  say "[$(elapsed)] $title"
  # In a process group of its own, which is ended as a whole: what runs in the background of a script is deaf to
  # Ctrl-C, and its children would go on without it.
  set -m
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  set +m
  trap 'trap - INT TERM; kill -- "-$pid" 2>/dev/null; wait "$pid" || true; say "stopped; the same command goes on from there" >&2; exit 130' INT TERM
  next=$((SECONDS + 15))
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if [ "$SECONDS" -ge "$next" ]; then
      say "[$(elapsed)]   … still: $title ($((SECONDS - begin)) s, log $log)"
      next=$((SECONDS + 15))
    fi
  done
  wait "$pid" || rc=$?
  trap - INT TERM
  if [ "$rc" -ne 0 ]; then
    tail -n 15 "$log" >&2
    fail "$title: exit code $rc" "read $log, mend what it names, and run the same command again: it goes on where it was"
  fi
}

# hold FILE PURPOSE: keeps other runs out until `release`. The processes that are started meanwhile hold it too, so
# that a run never meets what an earlier one, which was killed, has left at work.
hold() {
  mkdir -p "$(dirname "$1")"
  exec 8>>"$1"
  flock --nonblock 8 && return
  say "[$(elapsed)] waiting for another run ($2)"
  flock --wait "$WAIT_LIMIT_S" 8 ||
    fail "another run still holds $1 ($2) after $WAIT_LIMIT_S s" "wait for it to end, or end it, and run the same command again"
}

release() { exec 8>&-; }

check_machine() {
  [ "$(uname -sm)" = "Linux x86_64" ] ||
    fail "this machine is $(uname -sm); the packages are for Linux on x86_64" "run this on such a machine"
  getconf GNU_LIBC_VERSION >/dev/null 2>&1 ||
    fail "this machine's C library is not glibc" "run this on a distribution with glibc, such as Debian 12 or newer"
}

# free_gb FOLDER: whole gigabytes (10^9 bytes) free where FOLDER is, or will be
free_gb() {
  local folder=$1
  until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
  echo $(($(df --output=avail -B 1000000 -- "$folder" | tail -n 1) / 1000))
}

device() {
  local folder=$1
  until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
  stat -c %d -- "$folder"
}

check_disk() {
  # Measured, with the scratch of two builds at once; little where environment or packages are there already.
  local build=8 cache=6 free
  [ ! -e "$BUILD/envs/powerai/bin/python" ] || build=1
  [ ! -d "$CACHE/packages/finished/powerai" ] || cache=1
  if [ "$(device "$BUILD")" = "$(device "$CACHE")" ]; then
    free=$(free_gb "$BUILD")
    [ "$free" -ge $((build + cache)) ] || fail \
      "too little disk: $free GB free at $ROOT, where building takes $((build + cache)) GB ($build in build, $cache in the cache $CACHE)" \
      "free some, or put the clone or the cache (WMLCE_CACHE=FOLDER) on a larger disk"
    return
  fi
  free=$(free_gb "$BUILD")
  [ "$free" -ge "$build" ] || fail "too little disk: $free GB free at $BUILD, where building takes $build GB" \
    "free some, or put the clone on a larger disk"
  free=$(free_gb "$CACHE")
  [ "$free" -ge "$cache" ] || fail "too little disk: $free GB free at $CACHE, where finished packages take $cache GB" \
    "free some, or name a folder on a larger disk: WMLCE_CACHE=FOLDER"
}

present() { # PROBE: is what it looks for on this machine?
  case $1 in
    cmd:*) command -v "${1#cmd:}" >/dev/null 2>&1 || [ -x "/usr/sbin/${1#cmd:}" ] || [ -x "/sbin/${1#cmd:}" ] ;;
    file:*) [ -e "${1#file:}" ] ;;
    py:*) find_python >/dev/null ;;
    *) fail "ci/debian-packages.txt: unknown probe $1" "use cmd:, file: or py:" ;;
  esac
}

install_debian_packages() { # NEED...
  local need package probe what missing=() programs=()
  while read -r need package probe what; do
    case $need in '' | '#'*) continue ;; esac
    case " $* " in *" $need "*) ;; *) continue ;; esac
    case " ${missing[*]} " in *" $package "*) continue ;; esac
    present "$probe" || { missing+=("$package") && programs+=("${probe#*:} ($what)"); }
  done <"$ROOT/ci/debian-packages.txt"
  [ "${#missing[@]}" -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null 2>&1; then
    fail "this machine lacks, and has no apt-get to install it: $(printf '%s, ' "${programs[@]}")" \
      "install these by the system's own means. Or build on Debian 12 or newer, and bring the result here: the channel, an environment and the installer run on any x86-64 Linux with glibc 2.28 (docs/channel.md)"
  elif [ "$(id -u)" != 0 ] || [ -n "${WMLCE_OFFLINE:-}" ]; then
    check_offered_python "${missing[@]}"
    fail "this machine lacks: ${missing[*]}" "sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
  export DEBIAN_FRONTEND=noninteractive
  hold /run/lock/ibm-wml-ce.lock "installing Debian packages"
  # an installation that was interrupted must be finished before the next
  [ -z "$(dpkg --audit 2>&1)" ] ||
    step "finishing an interrupted installation" "$LOGS/dpkg-configure.log" dpkg --configure -a
  step "Debian's package lists" "$LOGS/apt-update.log" apt_update
  check_offered_python "${missing[@]}"
  step "installing Debian packages: ${missing[*]}" "$LOGS/apt-install.log" \
    apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends "${missing[@]}"
  release
}

apt_update() { # waits for others, which apt-get itself does for installing only
  local tries=60 out rc
  while :; do
    out=$(apt-get update -q 2>&1) && rc=0 || rc=$?
    printf '%s\n' "$out"
    case $rc:$out in 0:*) return ;; *"Could not get lock"*) ;; *) return "$rc" ;; esac
    [ "$((tries -= 1))" -gt 0 ] || return "$rc"
    sleep 5
  done
}

# Debian's python3 is older than 3.11 before Debian 12: said before anything is installed in vain.
check_offered_python() { # PACKAGE...
  local offered
  case " $* " in *" python3 "* | *" python3-venv "*) ;; *) return 0 ;; esac
  offered=$(apt-cache policy python3 2>/dev/null | sed -n 's/^ *Candidate: *//p')
  case $offered in 3.[0-9].* | 3.[0-9]-* | 3.10.* | 3.10-*) no_python "this distribution's is $offered" ;; esac
}

find_python() { # the newest python3 of at least 3.11 with venv
  local candidate
  for candidate in python3.11 python3 python3.12 python3.13 python3.14; do
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

no_python() { # DETAIL
  fail "there is no python3 of version 3.11 or newer with its venv module here; $1" \
    "use a system that has it, such as Debian 12 or newer (packages python3 and python3-venv), or put a python3.11 or newer of another origin first on PATH"
}

make_tools() {
  local python want found from=()
  if ! python=$(find_python); then
    found=$(python3 --version 2>&1) || found="there is no python3 at all"
    no_python "found: $found"
  fi
  want=$({ cat "$ROOT/ci/requirements.lock"; "$python" -VV; echo "$ROOT"; } | sha256sum | cut -c -12)
  # A folder for each set of tools: another run may still be using an older one.
  TOOLS=$BUILD/tools-$want
  WMLCE=$TOOLS/bin/wmlce
  if [ -e "$TOOLS/.complete" ]; then
    use_tools
    return
  fi
  hold "$BUILD/locks/tools.lock" "making the tool environment"
  if [ ! -e "$TOOLS/.complete" ]; then
    rm -rf "$TOOLS"
    step "making the tool environment" "$LOGS/tools-venv.log" "$python" -m venv "$TOOLS"
    # a folder that `wmlce source bundle` wrote has the tools too
    [ -z "${WMLCE_OFFLINE:-}" ] || from=(--no-index --find-links "$WMLCE_OFFLINE/tools")
    step "installing the tools (wmlce's libraries)" "$LOGS/tools-pip.log" \
      "$TOOLS/bin/python" -m pip install --require-hashes --no-deps --only-binary :all: "${from[@]}" -r "$ROOT/ci/requirements.lock"
    # wmlce and the validation run from the clone itself: an edit there needs no installation.
    printf '%s\n' "$ROOT/ci" "$ROOT" >"$("$TOOLS/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/wmlce-clone.pth"
    printf '#!/bin/sh\n# holds the lock that keeps this folder from being deleted while it is in use\nexec 9<"%s" && flock --shared 9\nexec "%s/bin/python" -m wmlce "$@"\n' \
      "$TOOLS/.complete" "$TOOLS" >"$TOOLS/bin/wmlce"
    chmod +x "$TOOLS/bin/wmlce"
    printf '%s' "$want" >"$TOOLS/.complete.new" && mv "$TOOLS/.complete.new" "$TOOLS/.complete"
  fi
  use_tools
  remove_old_tools
  release
}

use_tools() {
  exec 9<"$TOOLS/.complete"
  flock --shared 9
  [ "$(readlink "$BUILD/tools")" != "tools-$want" ] || return 0
  [ -L "$BUILD/tools" ] || rm -rf "$BUILD/tools"
  ln -s "tools-$want" "$BUILD/tools.$$" && mv -T "$BUILD/tools.$$" "$BUILD/tools"
}

remove_old_tools() { # those that no run uses
  local old
  for old in "$BUILD"/tools-*; do
    if [ "$old" != "$TOOLS" ] && { [ ! -e "$old/.complete" ] || flock --nonblock "$old/.complete" true; }; then
      rm -rf "$old"
    fi
  done
}

bootstrap() {
  check_machine
  mkdir -p "$LOGS"
  check_disk
  install_debian_packages "$@"
  make_tools
}
