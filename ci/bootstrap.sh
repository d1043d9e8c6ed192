# Sourced by ci/quickstart and ci/test: makes the machine ready to run wmlce.
#   bootstrap NEED...   NEED: build, test (first column of ci/debian-packages.txt)
# Afterwards the tool environment is in build/tools and $WMLCE runs the tool.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$ROOT/build
LOGS=$BUILD/logs
TOOLS=$BUILD/tools
STARTED=$SECONDS
export PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1

say() { printf '%s\n' "$*"; }

fail() { # WHAT REMEDY
  printf '\nerror: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf 'remedy: %s\n' "$2" >&2
  exit 1
}

elapsed() { printf '%d:%02d' $((($SECONDS - STARTED) / 60)) $((($SECONDS - STARTED) % 60)); }

# step TITLE LOG COMMAND...: runs COMMAND with its output in LOG and says every 15 s that it is still at work.
step() {
  local title=$1 log=$2 begin=$SECONDS pid rc=0 next
  shift 2
  mkdir -p "$(dirname "$log")"
  say "[$(elapsed)] $title"
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  next=$((SECONDS + 15))
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if [ "$SECONDS" -ge "$next" ]; then
      say "[$(elapsed)]   … still: $title ($((SECONDS - begin)) s, log $log)"
      next=$((SECONDS + 15))
    fi
  done
  wait "$pid" || rc=$?
  if [ "$rc" -ne 0 ]; then
    tail -n 15 "$log" >&2
    fail "$title: exit code $rc" "read $log, mend what it names, and run the same command again: it goes on where it was"
  fi
}

present() { # PROBE: is what it looks for on this machine?
  case $1 in
    cmd:*) command -v "${1#cmd:}" >/dev/null 2>&1 || [ -x "/usr/sbin/${1#cmd:}" ] || [ -x "/sbin/${1#cmd:}" ] ;;
    file:*) [ -e "${1#file:}" ] ;;
    py:*) python3 -c "import ${1#py:}" >/dev/null 2>&1 ;;
    *) fail "ci/debian-packages.txt: unknown probe $1" "use cmd:, file: or py:" ;;
  esac
}

install_debian_packages() { # NEED...
  local need package probe _ missing=()
  while read -r need package probe _; do
    case $need in '' | '#'*) continue ;; esac
    case " $* " in *" $need "*) present "$probe" || missing+=("$package") ;; esac
  done <"$ROOT/ci/debian-packages.txt"
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" = 0 ] && [ -z "${WMLCE_OFFLINE:-}" ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    step "Debian packages lists" "$LOGS/apt-update.log" apt-get update -q
    step "installing Debian packages: ${missing[*]}" "$LOGS/apt-install.log" \
      apt-get install -y -q --no-install-recommends "${missing[@]}"
  else
    fail "this machine lacks: ${missing[*]}" "sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
}

find_python() { # the newest python3 of at least 3.11 with venv
  local candidate
  for candidate in python3.11 python3 python3.12 python3.13; do
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

make_tools() {
  local python want from=()
  python=$(find_python) || fail "no python3 of version 3.11 or newer with the venv module" \
    "install one, on Debian: sudo apt-get install python3 python3-venv"
  want=$({ cat "$ROOT/ci/requirements.lock"; "$python" -VV; echo "$ROOT"; } | sha256sum | cut -d' ' -f1)
  if [ "$(cat "$TOOLS/.complete" 2>/dev/null)" != "$want" ]; then
    rm -rf "$TOOLS"
    mkdir -p "$BUILD"
    step "making the tool environment" "$LOGS/tools-venv.log" "$python" -m venv "$TOOLS"
    # a folder that `wmlce source bundle` wrote has the tools too
    [ -z "${WMLCE_OFFLINE:-}" ] || from=(--no-index --find-links "$WMLCE_OFFLINE/tools")
    step "installing the tools (wmlce's libraries)" "$LOGS/tools-pip.log" \
      "$TOOLS/bin/python" -m pip install --require-hashes --no-deps --only-binary :all: "${from[@]}" -r "$ROOT/ci/requirements.lock"
    # wmlce and the validation run from the clone itself: an edit there needs no installation.
    printf '%s\n' "$ROOT/ci" "$ROOT" >"$("$TOOLS/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/wmlce-clone.pth"
    printf '#!/bin/sh\nexec "%s/bin/python" -m wmlce "$@"\n' "$TOOLS" >"$TOOLS/bin/wmlce"
    chmod +x "$TOOLS/bin/wmlce"
    printf '%s' "$want" >"$TOOLS/.complete.new" && mv "$TOOLS/.complete.new" "$TOOLS/.complete"
  fi
  WMLCE=$TOOLS/bin/wmlce
}

bootstrap() {
  mkdir -p "$LOGS"
  install_debian_packages "$@"
  make_tools
}
