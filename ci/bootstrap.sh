# Sourced by ci/quickstart and ci/test: makes the machine ready to run wmlce.
#   bootstrap NEED...   NEED: tools, build, test (first column of ci/debian-packages.txt); where nothing is built, tools
# Afterwards the tool environment is in $TOOLS (build/tools is a link to it) and $WMLCE runs the tool.
# shellcheck shell=bash

unset "${!PYTHON@}" # the user's: each of them can lead Python elsewhere
ROOT=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$ROOT/build
LOGS=$BUILD/logs
TOOLS=$BUILD/tools
case ${XDG_CACHE_HOME:-} in /*) CACHE=$XDG_CACHE_HOME ;; *) CACHE=${HOME:+$HOME/.cache} ;; esac # by its standard, absolute
CACHE=${WMLCE_CACHE:-$CACHE/wmlce}
STARTED=$SECONDS
WAIT_LIMIT_S=1800
ROOT_LIMIT=220 # bytes: with /build/envs/NAME behind it, packages have room for 255
JOB_MB=2000 # memory that building one package takes at most
TMP_MB=100 # for temporary files
PYTHONS=(3.11 3.12 3.13 3.14) # that ci/requirements*.lock have files for
OS_RELEASE=/etc/os-release
# The tools see their own libraries alone, and read files alike in every locale.
export PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1 PYTHONUTF8=1

say() { printf '%s\n' "$*"; }

fail() { # WHAT REMEDY
  printf '\nerror: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf 'remedy: %s\n' "$2" >&2
  exit 1
}

elapsed() { printf '%d:%02d' $(((SECONDS - STARTED) / 60)) $(((SECONDS - STARTED) % 60)); }

# step TITLE LOG COMMAND...: runs COMMAND with its output in LOG and says every 15 s that it is still at work.
# REMEDY_OF: a function that knows remedies of what LOG names.
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
  trap 'trap - INT TERM; kill -- "-$pid" 2>/dev/null; wait "$pid" || true; say "stopped; the same command resumes from there" >&2; exit 130' INT TERM
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
    fail "$title: exit code $rc" \
      "$("${REMEDY_OF:-remedy_of_any}" "$log"), and run the same command again: it goes on where it was"
  fi
}

remedy_of_any() { # LOG
  printf 'read %s, fix what it names' "$1"
}

# remedy_of_pip LOG: for what networks and indexes do, by pip's words for it.
remedy_of_pip() {
  local configuration="python3 -m pip config list"
  if grep -qE 'CERTIFICATE_VERIFY_FAILED|certificate verify failed' "$1"; then
    printf "name the file that has your site's certificates, PIP_CERT=FILE"
  elif grep -qE 'ProxyError|Tunnel connection failed' "$1"; then
    printf "see the proxy: HTTPS_PROXY, or 'proxy' in pip's settings (%s)" "$configuration"
  elif grep -qE 'NewConnectionError|connection broken|Max retries|[Tt]imed out|Temporary failure' "$1"; then
    printf 'see the network, the proxy (HTTPS_PROXY), and the index in the settings of pip (%s)' "$configuration"
  elif grep -q 'DO NOT MATCH THE HASHES' "$1"; then
    printf 'the index has another file than the one that is locked: name another index, PIP_INDEX_URL=ADDRESS'
  elif grep -q 'No matching distribution found' "$1"; then
    printf "pip's index lacks it, or did not answer (%s): name another one, PIP_INDEX_URL=ADDRESS; without a network see docs/cluster/sources.md" \
      "$configuration"
  else
    remedy_of_any "$1"
  fi
}

# hold FILE PURPOSE: keeps other runs out until `release`. The processes that are started meanwhile hold it too, so
# that a run never meets what an earlier one, which was killed, has left at work.
hold() {
  local rc=0 said
  mkdir -p "$(dirname "$1")"
  exec 8>>"$1"
  said=$(flock --nonblock 8 2>&1) || rc=$?
  [ "$rc" = 1 ] || { lockable "$rc" "$1" "$said" && return; }
  say "[$(elapsed)] waiting for another run ($2)"
  flock --wait "$WAIT_LIMIT_S" 8 ||
    fail "another run still holds $1 ($2) after $WAIT_LIMIT_S s" "wait for it to end, or end it, and run the same command again"
}

lockable() { # CODE FILE MESSAGE: what flock has said of a file that nobody else holds
  [ "$1" = 0 ] || fail "$2 cannot be locked: ${3:-flock: exit code $1}" \
    "the file system of ${2%/*} has no flock: mount it with it (Lustre: -o flock), or put this on another one"
}

release() { exec 8>&-; }

check_machine() {
  [ "$(uname -sm)" = "Linux x86_64" ] ||
    fail "this machine is $(uname -sm); the packages are for Linux on x86_64" "run this on such a machine"
  getconf GNU_LIBC_VERSION >/dev/null 2>&1 ||
    fail "this machine's C library is not glibc" "run this on a distribution with glibc, such as Debian 12 or newer"
}

check_paths() {
  local path what rc trial elsewhere
  [ "$CACHE" != /wmlce ] ||
    fail "there is no place for finished packages: HOME is not set" "name a folder for them: WMLCE_CACHE=FOLDER"
  # those that envs/clone.py refuses
  for path in "$ROOT" "$CACHE"; do
    what="clone" && [ "$path" = "$ROOT" ] || what="cache (WMLCE_CACHE)"
    case $path in *[[:space:][:cntrl:]]* | *[]:\;,\'\"\$\`\\\#%*?\&\|\<\>\(\){}!^=[]*)
      fail "the path of the $what has a blank or another character that builds cannot cope with: $path" \
        "move it to a path of letters, digits and '/', '.', '_', '-', '+'" ;;
    esac
  done
  [ "${#ROOT}" -le "$ROOT_LIMIT" ] ||
    fail "the path of the clone has ${#ROOT} characters, and packages have room for $ROOT_LIMIT: $ROOT" "move it to a shorter one"
  for path in "$BUILD" "$CACHE"; do
    elsewhere="put the clone" && [ "$path" = "$BUILD" ] || elsewhere="name a folder (WMLCE_CACHE=FOLDER)"
    trial=$path/.trial.$$
    { mkdir -p "$path" && printf '#!/bin/sh\n' >"$trial" && chmod +x "$trial"; } 2>/dev/null ||
      fail "$path cannot be written: $(existing "$path") is not this user's, read-only or full" "make it writable, or $elsewhere where it is"
    "$trial" 2>/dev/null && rc=0 || rc=$?
    rm -f "$trial"
    [ "$rc" = 0 ] || fail "programs in $path cannot be run (is its file system mounted with 'noexec'?)" "$elsewhere on another one"
  done
  path=${TMPDIR:-/tmp}
  { [ -d "$path" ] && [ -w "$path" ] && [ "$(free_mb "$path")" -ge "$TMP_MB" ]; } ||
    fail "programs need $TMP_MB MB for temporary files, and $path has not got them, or may not be written" "name another folder: TMPDIR=FOLDER"
}

# existing PATH: the nearest folder that is there, itself or above
existing() {
  local folder=$1
  until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
  printf '%s' "$folder"
}

# free_mb, free_gb FOLDER: whole megabytes and gigabytes (10^9 bytes) free where FOLDER is, or will be
free_mb() { df --output=avail -B 1000000 -- "$(existing "$1")" | tail -n 1; }
free_gb() { echo $(($(free_mb "$1") / 1000)); }

device() { stat -c %d -- "$(existing "$1")"; }

# memory_mb: of this machine, or what its container may have of it
memory_mb() {
  local limit most=$(($(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE) / 1000000))
  for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    [ -r "$limit" ] && read -r limit <"$limit" && [[ $limit =~ ^[0-9]{1,15}$ ]] || continue
    [ "$((limit / 1000000))" -ge "$most" ] || most=$((limit / 1000000))
  done
  echo "$most"
}

check_memory() {
  local found
  found=$(memory_mb)
  [ "$found" -ge "$JOB_MB" ] || fail "too little memory: $found MB, where building a package takes up to $JOB_MB MB" \
    "use a machine (or give the container) more"
}

# default_jobs: packages that this machine's cores and memory can build at the same time
default_jobs() {
  local cores most
  cores=$(nproc) most=$(($(memory_mb) / JOB_MB))
  echo $((most < 1 ? 1 : most < cores ? most : cores))
}

check_disk() { # what building takes; of the tools alone, nothing but themselves
  # Measured, with the scratch of two builds at once; little where environment or packages are there already.
  local build=8 cache=6 free
  [ -n "$building" ] || build=2 cache=0
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
    certificates:*) certificates "${1#*:}" ;;
    py:*) find_python >/dev/null ;;
    *) fail "ci/debian-packages.txt: unknown probe $1" "use cmd:, file:, certificates: or py:" ;;
  esac
}

# certificates FILE:FILE...: is one of them there, or one that the user has named? A folder of sources needs none.
certificates() {
  local file
  [ -z "${WMLCE_OFFLINE:-}" ] || return 0
  while read -r -d : file; do
    [ ! -s "$file" ] || return 0
  done <<<"$1:${SSL_CERT_FILE:-}:${PIP_CERT:-}:${REQUESTS_CA_BUNDLE:-}:${CURL_CA_BUNDLE:-}:"
  return 1
}

install_debian_packages() { # NEED...
  local need package probe what name missing=() programs=()
  while read -r need package probe what; do
    case $need in '' | '#'*) continue ;; esac
    case " $* " in *" $need "*) ;; *) continue ;; esac
    case " ${missing[*]} " in *" $package "*) continue ;; esac
    present "$probe" && continue
    name=${probe#*:}
    [ "$name" != ensurepip ] || name="Python ${PYTHONS[0]} to ${PYTHONS[-1]} with venv"
    missing+=("$package") programs+=(", $name ($what)")
  done <"$ROOT/ci/debian-packages.txt"
  [ "${#missing[@]}" -gt 0 ] || return 0
  if ! has_apt; then
    printf -v name '%s' "${programs[@]}"
    fail "this machine lacks, and has no apt-get to install it: ${name#, }" \
      "$(own_command "${missing[@]}"). Or build on Debian 12 or newer, and bring the result here: the channel, an environment and the installer run on any x86-64 Linux with glibc 2.28 (docs/cluster/channel.md)"
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

# Some distributions have an apt-get for packages of another kind.
has_apt() { command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1; }

# system_is WORD...: is this system, by its os-release, one of these or derived from one?
system_is() {
  local words word
  # shellcheck disable=SC1090  # a file of assignments for shells (os-release(5))
  words=$(. "$OS_RELEASE" 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}") || return 1
  for word in "$@"; do
    case " $words " in *" $word "*) return ;; esac
  done
  return 1
}

# own_command DEBIAN-PACKAGE...: what installs these on this system, in its own words. Only the names of what builds
# need are known; those of the tests are told by their programs.
own_command() {
  local package names=() python=python3.12 installer
  if system_is rhel centos; then
    installer="dnf install"
  elif system_is fedora; then
    installer="dnf install" python=python3
  elif system_is suse sles opensuse; then
    installer="zypper install" python=python311
  elif system_is arch; then
    installer="pacman -S --needed" python=python
  else
    printf "install these by the system's own means"
    return
  fi
  for package in "$@"; do
    case $package in
      python3 | python3-venv) package=$python ;;
      git | ca-certificates) ;;
      *) printf "install these by the system's own means (%s)" "$installer" && return ;;
    esac
    case " ${names[*]} " in *" $package "*) ;; *) names+=("$package") ;; esac
  done
  printf 'sudo %s %s' "$installer" "${names[*]}"
}

apt_update() { # waits for others, which apt-get itself does for installing only
  local tries=60 out rc
  while :; do
    out=$(LC_ALL=C apt-get update -q 2>&1) && rc=0 || rc=$?
    printf '%s\n' "$out"
    case $rc:$out in 0:*) return ;; *"Could not get lock"*) ;; *) return "$rc" ;; esac
    [ "$((tries -= 1))" -gt 0 ] || return "$rc"
    sleep 5
  done
}

offered() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n '/(none)/d; s/^ *Candidate: *//p'; }

# Older distributions have an older python3, and some a newer one beside it: said before anything is installed in vain.
check_offered_python() { # PACKAGE...
  local found version
  case " $* " in *" python3 "* | *" python3-venv "*) ;; *) return 0 ;; esac
  found=$(offered python3)
  case $found in 3.[0-9].* | 3.[0-9]-* | 3.10.* | 3.10-*) ;; *) return 0 ;; esac
  for version in "${PYTHONS[@]}"; do
    [ -z "$(offered "python$version-venv")" ] || no_python "this distribution's is $found, and it has another one" \
      "sudo apt-get install --no-install-recommends python$version-venv"
  done
  no_python "this distribution's is $found"
}

find_python() { # a python3 that the tools are locked for, with venv
  local candidate
  for candidate in python3.11 python3 python3.12 python3.13 python3.14; do
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -I -c 'import sys, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] not in sys.argv)' "${PYTHONS[@]}" >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

no_python() { # DETAIL [COMMAND]
  fail "there is no python3 of version ${PYTHONS[0]} to ${PYTHONS[-1]} with its venv module here; $1" \
    "${2:+$2; or }use a system that has it, such as Debian 12 or newer (packages python3 and python3-venv), or put a python${PYTHONS[0]} to python${PYTHONS[-1]} of another origin on PATH"
}

# A system without apt names no mirror of Debian, whose sources are built: said before anything is fetched.
check_mirror() {
  { [ ! -d "$CACHE/packages/finished/powerai" ] && [ ! -e "$BUILD/channel/channel.json" ]; } || return 0
  has_apt || [ -n "${WMLCE_DEBIAN_MIRROR:-}${WMLCE_OFFLINE:-}${WMLCE_SOURCES:-}" ] || fail \
    "no mirror of Debian is named, whose sources are built here, and this system has no apt whose settings would name one" \
    "export WMLCE_DEBIAN_MIRROR=URL, the address of a folder with dists and pool; or take the sources from a folder (WMLCE_OFFLINE, docs/cluster/sources.md)"
}

# Packages are built in namespaces; nothing is to be built where they, or a channel from elsewhere, are here.
check_namespaces() {
  local python
  { [ ! -d "$CACHE/packages/finished/powerai" ] && [ ! -e "$BUILD/channel/channel.json" ]; } || return 0
  python=$(find_python) || return 0 # make_tools says it
  PYTHONPATH=$ROOT/ci "$python" -BPs -m wmlce.builder.sandbox || exit 1
}

make_tools() { # NEED…: the tools of wmlce; with `docs` those of the documentation too, with `test` those and the tests'
  local python want found set sets=(requirements) clone=$ROOT/ci$'\n'$ROOT/validation
  if ! python=$(find_python); then
    found=$(python3 --version 2>&1) || found="there is no python3 at all"
    no_python "found: $found"
  fi
  case " $* " in *" docs "* | *" test "*) sets+=(requirements-docs) ;; esac
  case " $* " in *" test "*) sets+=(requirements-test) ;; esac
  want=$({ cat "$ROOT"/ci/requirements{,-docs,-test}.lock; "$python" -VV; echo "$clone"; } | sha256sum | cut -c -12)
  # A folder for each set of tools: another run may still be using an older one.
  TOOLS=$BUILD/tools-$want
  WMLCE=$TOOLS/bin/wmlce
  if [ -e "$TOOLS/.complete" ] && [ -e "$TOOLS/.has-${sets[-1]}" ]; then
    use_tools
    return
  fi
  hold "$BUILD/locks/tools.lock" "making the tool environment"
  if [ ! -e "$TOOLS/.complete" ]; then
    rm -rf "$TOOLS"
    step "making the tool environment" "$LOGS/tools-venv.log" "$python" -I -m venv "$TOOLS"
    install_tools requirements "wmlce's libraries"
    # wmlce and ddl_validate run from the clone itself: an edit there needs no installation.
    printf '%s\n' "$clone" >"$("$TOOLS/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/wmlce-clone.pth"
    # seen to work before it counts as whole
    step "trying the tools" "$LOGS/tools-trial.log" \
      "$TOOLS/bin/python" -I -c 'import wmlce.cli.main, wmlce.envs.environments, wmlce.builder.schedule'
    printf '%s' "$want" >"$TOOLS/.complete.new" && mv "$TOOLS/.complete.new" "$TOOLS/.complete"
  fi
  # beside runs that use the others: it adds files, and changes none
  for set in "${sets[@]:1}"; do
    [ -e "$TOOLS/.has-$set" ] || install_tools "$set" "what ci/${set#requirements-} needs" --ignore-installed
  done
  use_tools
  remove_old_tools
  release
}

install_tools() { # SET TITLE [OPTION…]: what ci/SET.lock lists
  local from=()
  # a folder that `wmlce source bundle` wrote has the tools too
  [ -z "${WMLCE_OFFLINE:-}" ] || from=(--no-index --find-links "$WMLCE_OFFLINE/tools")
  # pip unpacks where the disk was looked at, and not in a small /tmp; Python compiles what is used, when it is
  mkdir -p "$BUILD/tmp"
  REMEDY_OF=remedy_of_pip step "installing the tools ($2)" "$LOGS/tools-pip.log" env TMPDIR="$BUILD/tmp" \
    "$TOOLS/bin/python" -I "$ROOT/ci/wmlce/sources/own_pip.py" install --require-hashes --no-deps --no-compile --only-binary :all: \
    "${from[@]}" "${@:3}" -r "$ROOT/ci/$1.lock"
  : >"$TOOLS/.has-$1"
}

# write_wmlce: the command, anew in a folder that an older version of this file made
write_wmlce() {
  local text
  printf -v text '#!/bin/sh\n# holds the lock that keeps this folder from being deleted while it is in use\nexec 9<"%s" && flock --shared 9\n# each of these can lead the programs that it starts elsewhere\nfor name in $(env | sed -n "s/^\\(PYTHON[A-Z0-9_]*\\)=.*/\\1/p"); do unset "$name"; done\n# isolated: administrators start it in folders of others\nexec "%s/bin/python" -I -X utf8 -m wmlce "$@"' \
    "$TOOLS/.complete" "$TOOLS"
  [ "$(cat "$WMLCE" 2>/dev/null)" != "$text" ] || return 0
  printf '%s\n' "$text" >"$WMLCE.$$" && chmod +x "$WMLCE.$$" && mv "$WMLCE.$$" "$WMLCE"
}

use_tools() {
  local rc=0 said
  write_wmlce
  exec 9<"$TOOLS/.complete"
  said=$(flock --shared 9 2>&1) || rc=$?
  lockable "$rc" "$TOOLS/.complete" "$said"
  [ "$(readlink "$BUILD/tools")" != "tools-$want" ] || return 0
  [ -L "$BUILD/tools" ] || rm -rf "$BUILD/tools"
  ln -s "tools-$want" "$BUILD/tools.$$" && mv -T "$BUILD/tools.$$" "$BUILD/tools"
}

remove_old_tools() { # those that no run uses
  local old
  for old in "$BUILD"/tools-*; do
    if [ "$old" != "$TOOLS" ] && { [ ! -e "$old/.complete" ] || flock --nonblock "$old/.complete" true; }; then
      rm -rf "$old" || : # a program that did not ask for it writes there; the next run removes the rest
    fi
  done
}

bootstrap() {
  check_machine
  check_paths
  local building=""
  case " $* " in *" build "*) building=yes ;; esac
  mkdir -p "$LOGS"
  [ -z "$building" ] || check_memory
  check_disk
  install_debian_packages tools "$@"
  if [ -n "$building" ]; then
    check_namespaces
    check_mirror
  fi
  make_tools "$@"
}
