#!/bin/sh
sha256=@SHA256@
# The line above is the checksum of everything after it; behind the last line of this text come the packages.
# One group of commands holds all of it, because a shell runs what it has read: a copy without the end runs nothing.
{
# Installs ibm-wml-ce @VERSION@ for @PLATFORM@: run `sh FILE --help`. Needs no root, no network, no conda and no Python.
# shellcheck disable=SC2317,SC2329  # what traps call looks as if nobody called it
set -u
LC_ALL=C
export LC_ALL
unset CDPATH
# everybody may read what is installed, also where root has the umask 077; it still decides who may write
umask "$(printf %o $((0$(umask) & 022)))"

version=@VERSION@
file_size=@FILE_SIZE@
text_size=@TEXT_SIZE@
bootstrap_size=@BOOTSTRAP_SIZE@
packages=@PACKAGES@
disk_kib=@DISK_KIB@
prefix_limit=@PREFIX_LIMIT@
glibc=@GLIBC@

name="ibm-wml-ce $version"
scratch_name=.ibm-wml-ce-installer
file=$0
prefix=
why=
fix=
work=     # our own folder in the prefix, while there is something to clear away
made=     # the topmost folder that we made
child=    # the process that installs
late=     # the exit code of a signal that came while none was heeded

usage() {
  cat <<TEXT
usage: sh ${0##*/} [--batch] [--prefix DIR] [--signers FILE] [--list] [--help]

Installs $name: $packages packages, $(mebibytes "$disk_kib") of disk space while it works.
It needs @SPOKEN@ Linux with glibc $glibc or newer, and no root, network, conda or Python.

  -p, --prefix DIR   the folder to install into; it is made, or is there and empty
                     (default: ~/ibm-wml-ce/$version)
  -b, --batch        ask nothing
      --signers FILE check the signature in ${0##*/}.sig with the public keys in FILE (of ssh-keygen)
  -l, --list         list the packages with their licences, and install nothing
  -h, --help         this text

Exit codes: 0 installed; 1 not installed, and the error says why; 2 an option is wrong;
129, 130, 143 stopped by HUP, INT (Ctrl-C), TERM. What is not installed whole is removed.
TEXT
}

list() {
  cat <<'TEXT'
@LIST@
TEXT
}

say() { printf '%s\n' "$*"; }

mebibytes() { say "$((($1 + 1023) / 1024)) MiB"; }

complain() { # WHAT REMEDY
  printf 'error: %s\n' "$1" >&2
  [ -z "${2:-}" ] || printf 'remedy: %s\n' "$2" >&2
}

fail() { # WHAT REMEDY
  complain "$@"
  exit 1
}

misused() { # WHAT
  complain "$1" "see --help"
  exit 2
}

# ---------------------------------------------------------------------------------------------------------
# Checks that change nothing

older() { # VERSION THAN: is 2.9 older than 2.28?
  [ "${1%%.*}" -lt "${2%%.*}" ] || { [ "${1%%.*}" -eq "${2%%.*}" ] && [ "${1#*.}" -lt "${2#*.}" ]; }
}

check_machine() {
  for program in cat date df env grep gzip head ls mkdir rm rmdir sha256sum tail tar uname wc; do
    command -v "$program" >/dev/null 2>&1 ||
      fail "this system has no program $program" "install it; every Linux distribution has it"
  done
  [ "$(uname -s) $(uname -m)" = "Linux @MACHINE@" ] ||
    fail "$name is for @SPOKEN@ Linux, and this is $(uname -s) on $(uname -m)" "use the installer of that platform"
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null) || found=$(ldd --version 2>/dev/null | head -n 1)
  found=${found##* }
  case $found in
    [0-9]*.[0-9]*) ;;
    *) fail "the C library of this system is not glibc, and $name needs glibc $glibc or newer" \
      "use a distribution with glibc, or a container of one" ;;
  esac
  minor=${found#*.}
  found=${found%%.*}.${minor%%[!0-9]*}
  ! older "$found" "$glibc" ||
    fail "this system has glibc $found, and $name needs $glibc or newer" "use a newer system, or a container of one"
}

check_file() {
  case $file in
    */*) ;;
    *) [ -f "$file" ] || file=$(command -v -- "$file") ;;
  esac
  { [ -f "$file" ] && head -n 2 -- "$file" | grep -qx "sha256=$sha256"; } 2>/dev/null ||
    fail "this shell does not say which file it runs" "run it as a file: sh ibm-wml-ce-$version-@PLATFORM@.sh"
  size=$(($(wc -c <"$file")))
  [ "$size" -eq "$file_size" ] ||
    fail "$file has $size bytes and should have $file_size: the copy is not complete" "copy it again"
  say "checking $file ($(mebibytes $((file_size / 1024))))"
  found=$(tail -n +3 -- "$file" | sha256sum)
  [ "${found%% *}" = "$sha256" ] ||
    fail "$file is damaged: its sha256 is ${found%% *} and should be $sha256" "copy it again"
}

# check_signature: is this file what one of the user's keys signed? (Whoever changed it could have left this out:
# ssh-keygen alone says more. It is for a copy of the wrong file, and for keys that were revoked.)
check_signature() {
  [ -n "$signers" ] || return 0
  command -v ssh-keygen >/dev/null 2>&1 ||
    fail "there is no command ssh-keygen to check the signature with" "install OpenSSH's client, or leave out --signers"
  [ -r "$signers" ] || fail "the file of public keys $signers cannot be read" "name another one (--signers FILE)"
  [ -r "$file.sig" ] || fail "$file is not signed: there is no $file.sig" "copy it too, or leave out --signers"
  set -- -Y verify -f "$signers" -I "$signer" -n ibm-wml-ce -s "$file.sig"
  found=$(ssh-keygen "$@" <"$file" 2>&1) || {
    case $found in
      *"incorrect signature"*) fail "the signature $file.sig does not match $file" "copy both again" ;;
      *) printf '%s\n' "$found" >&2
        fail "the signature $file.sig is of no key of $signer in $signers" "get the key from who made the installer" ;;
    esac
  }
  case $signers in */*) revoked=${signers%/*}/revoked_keys ;; *) revoked=revoked_keys ;; esac
  [ ! -e "$revoked" ] || ssh-keygen "$@" -r "$revoked" <"$file" >/dev/null 2>&1 ||
    fail "$file is signed by a key that is revoked in $revoked" "get the installer again"
  say "$found"
}

# absolute TEXT: the path that TEXT means, in `prefix`
absolute() {
  # shellcheck disable=SC2088  # the letter itself is meant
  case $1 in
    '~' | '~/'*)
      [ -n "${HOME:-}" ] || { why="'~' means nothing here: HOME is not set" fix="write the whole path"; return 1; }
      set -- "$HOME${1#?}" ;;
    '~'*) why="the folder '$1' starts with '~'" fix="write the whole path"; return 1 ;;
  esac
  case $1 in
    /*) rest=$1/ ;;
    *) rest=$PWD/$1/ ;;
  esac
  prefix=
  while [ -n "$rest" ]; do
    part=${rest%%/*}
    rest=${rest#*/}
    case $part in
      '' | .) ;;
      ..) prefix=${prefix%/*} ;;
      *) prefix=$prefix/$part ;;
    esac
  done
  prefix=${prefix:-/}
}

# nearest PATH: the first folder above it, or itself, that is there; in `nearest`
nearest() {
  nearest=$1
  while [ ! -e "$nearest" ] && [ ! -L "$nearest" ] && [ -n "$nearest" ]; do nearest=${nearest%/*}; done
  nearest=${nearest:-/}
}

# check_prefix TEXT: may the environment be installed there? Sets `prefix`, or `why` not and `fix`.
check_prefix() {
  fix="choose another folder (--prefix DIR)"
  [ -n "$1" ] || { why="the folder has no name"; return 1; }
  absolute "$1" || return 1
  case $prefix in
    *[[:space:]]*)
      why="the folder '$prefix' has a blank in its path, and the first lines of scripts in it cannot name such a path"
      return 1 ;;
    *[[:cntrl:]]* | *[]:\;,\'\"\$\`\\\#%*?\&\|\<\>\(\){}!^=[]*)
      why="the folder '$prefix' has a character in its path that programs cannot cope with (one of : ; , ' \" \$ \` \\ # % * ? & | < > ( ) [ ] { } ! ^ =)"
      return 1 ;;
  esac
  [ "${#prefix}" -le "$prefix_limit" ] || {
    why="the path $prefix has ${#prefix} bytes, and programs in the packages have room for $prefix_limit"
    fix="choose a shorter path (--prefix DIR)"
    return 1
  }
  if [ -e "$prefix" ] || [ -L "$prefix" ]; then
    [ -d "$prefix" ] || { why="$prefix exists and is not a folder"; return 1; }
    { [ -r "$prefix" ] && [ -w "$prefix" ] && [ -x "$prefix" ]; } ||
      { why="you may not write into $prefix"; return 1; }
    if [ -e "$prefix/$scratch_name" ]; then
      abandoned || return 1
    elif [ -n "$(ls -A "$prefix")" ]; then
      why="the folder $prefix exists and is not empty"
      return 1
    fi
  fi
  nearest "$prefix"
  { [ -d "$nearest" ] && [ -w "$nearest" ] && [ -x "$nearest" ]; } ||
    { why="$prefix cannot be made: $nearest is not a folder that you can write to"; return 1; }
  available=$(free_kib "$nearest")
  [ -n "$available" ] && [ "$available" -lt "$disk_kib" ] && {
    why="$prefix has $(mebibytes "$available") of free space, and the installation needs $(mebibytes "$disk_kib")"
    fix="free some space, or choose a folder on another file system (--prefix DIR)"
    return 1
  }
  return 0
}

free_kib() { # FOLDER
  line=$(df -Pk -- "$1" 2>/dev/null | tail -n 1)
  # the words before the percentage, of which the last one counts: a device's name may have blanks in it
  set -f
  # shellcheck disable=SC2086  # split into words
  set -- ${line%%\%*}
  set +f
  [ $# -ge 3 ] || return 0
  shift $(($# - 2))
  case $1 in *[!0-9]*) ;; *) say "$1" ;; esac
}

# abandoned: did the installer that has left its folder in the prefix come to its end?
abandoned() {
  read -r host pid 2>/dev/null <"$prefix/$scratch_name/owner" || host='' pid=''
  if [ -n "$pid" ] && [ "$host" = "$(uname -n)" ] && [ ! -e "/proc/$pid" ] && ! kill -0 "$pid" 2>/dev/null; then
    return 0
  fi
  why="another installer (process ${pid:-unknown} on ${host:-an unknown host}) works in $prefix, or was killed there"
  fix="wait for it, or remove $prefix if no installer runs, or choose another folder (--prefix DIR)"
  return 1
}

# ---------------------------------------------------------------------------------------------------------
# Installing

# empty_prefix: the folder was empty when we came, or holds what a killed installer left
empty_prefix() {
  for _ in 1 2 3 4 5; do
    rm -rf -- "${prefix:?}"/* "$prefix"/.[!.]* "$prefix"/..?* 2>/dev/null
    [ -n "$(ls -A "$prefix")" ] || return 0
    sleep 1 # a process that is just ending, or a file system that is late
  done
  complain "not everything could be removed from $prefix" "remove it by hand"
}

hold_signals() {
  trap 'late=129' HUP
  trap 'late=130' INT
  trap 'late=143' TERM
}

heed_signals() {
  trap 'stopped 129' HUP
  trap 'stopped 130' INT
  trap 'stopped 143' TERM
  [ -z "$late" ] || stopped "$late"
}

clear_away() {
  [ -z "$child" ] || {
    # it makes itself the leader of a group; where it has not come so far it is alone
    kill -s TERM -- "-$child" 2>/dev/null || kill -s TERM "$child" 2>/dev/null
    wait "$child" 2>/dev/null
    child=
  }
  [ -z "$work" ] || {
    work=
    empty_prefix
  }
  [ -z "$made" ] || {
    folder=$prefix/
    while [ "$folder" != "$made" ]; do
      folder=${folder%/*}
      rmdir -- "$folder" 2>/dev/null
    done
    made=
  }
}

stopped() { # EXIT CODE
  trap '' HUP INT TERM
  printf '\nstopped: removing what was installed so far\n' >&2
  clear_away
  trap - EXIT
  exit "$1"
}

install() {
  started=$(date +%s)
  heed_signals
  trap clear_away EXIT
  if [ -e "$prefix/$scratch_name" ]; then
    # asked again: another one may have begun since the prefix was looked at
    abandoned || fail "$why" "$fix"
    say "removing what a killed installer left in $prefix"
    empty_prefix
  fi
  nearest "$prefix"
  if [ "$nearest" != "$prefix" ]; then
    below=${prefix#"${nearest%/}"/}
    made=${nearest%/}/${below%%/*}
    mkdir -p -- "$prefix" || fail "$prefix cannot be made" "choose another folder (--prefix DIR)"
  fi
  hold_signals
  mkdir -- "$prefix/$scratch_name" || fail "cannot work in $prefix" "wait if another installer does, or choose another folder"
  if [ "$(ls -A "$prefix")" != "$scratch_name" ]; then
    rmdir -- "$prefix/$scratch_name"
    fail "the folder $prefix is not empty any more" "choose another folder (--prefix DIR)"
  fi
  work=$prefix/$scratch_name
  heed_signals
  { printf '%s %s\n' "$(uname -n)" "$$" >"$work/owner" && mkdir -- "$work/bootstrap" "$work/tmp"; } ||
    fail "cannot write into $work" "see the message above"

  say "unpacking the installer's own Python"
  tail -c "+$((text_size + 1))" -- "$file" 2>/dev/null | head -c "$bootstrap_size" | tar -xzof - -C "$work/bootstrap" ||
    fail "the first part of $file cannot be unpacked into $work" "see the message above"
  python=$work/bootstrap/bin/python3
  LD_LIBRARY_PATH=$work/bootstrap/lib "$python" -I -B -c '' ||
    fail "programs in $prefix cannot be run (is its file system mounted with 'noexec'?)" \
      "choose a folder on another file system (--prefix DIR)"
  # none of the variables and settings of the user, and nothing written outside of the prefix
  hold_signals
  env -i PATH=/usr/bin:/bin HOME="$work/tmp" TMPDIR="$work/tmp" LC_ALL=C.UTF-8 \
    LD_LIBRARY_PATH="$work/bootstrap/lib" SSL_CERT_FILE="$work/bootstrap/ssl/cacert.pem" \
    "$python" -I -B "$work/bootstrap/on_target.py" "$file" "$((text_size + bootstrap_size))" "$work" "$prefix" "$$" &
  child=$!
  heed_signals
  wait "$child"
  code=$?
  child=
  [ "$code" -eq 0 ] || fail "$name could not be installed in $prefix (exit code $code)" "see the message above"
  if [ -x "$prefix/bin/ddlrun" ]; then
    "$prefix/bin/ddlrun" -version >/dev/null || fail "ddlrun does not work on this system" "see the message above"
  fi
  # whole from here on: nothing but our own folder is to go, whatever happens
  trap '' HUP INT TERM
  trap - EXIT
  rm -rf -- "$work"
  seconds=$(($(date +%s) - started))
  say "$name is in $prefix: $packages packages in $((seconds / 60)) min $((seconds % 60)) s"
}

# pasted TEXT: as a word that a shell takes for TEXT; none that it may hold needs more
pasted() {
  case $1 in
    *[!A-Za-z0-9/._+-]*) printf "'%s'" "$1" ;;
    *) printf '%s' "$1" ;;
  esac
}

explain() {
  say ""
  word=$(pasted "$prefix")
  if [ -x "$prefix/bin/ddlrun" ]; then
    say "Start a job of two ranks:    $word/bin/ddlrun -np 2 python train.py"
  fi
  say "Use it in this shell:        . $word/bin/activate      (and \`deactivate\`)"
  say "Remove it:                   rm -rf $word"
}

ask() { # DEFAULT
  say "$name: $packages packages, $(mebibytes "$disk_kib") of disk space while it is installed."
  say "ibm-wml-ce has the licence Apache-2.0, every package its own: see --list. Going on accepts them."
  while :; do
    printf 'Folder to install into [%s]: ' "$1"
    IFS= read -r answer || { say ""; fail "no answer: nothing was installed" "for an installation without questions add --batch"; }
    if check_prefix "${answer:-$1}"; then return; fi
    complain "$why" "$fix"
  done
}

main() {
  batch=no chosen='' signers='' signer=release@ibm-wml-ce
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage; exit 0 ;;
      -l | --list) list; exit 0 ;;
      -b | --batch) batch=yes ;;
      -p | --prefix)
        [ $# -ge 2 ] || misused "$1 needs a folder"
        shift
        [ -n "$1" ] || misused "--prefix needs a folder"
        chosen=$1 ;;
      --prefix=?*) chosen=${1#--prefix=} ;;
      --signers)
        [ $# -ge 2 ] && [ -n "$2" ] || misused "--signers needs a file"
        shift
        signers=$1 ;;
      --signers=?*) signers=${1#--signers=} ;;
      *) misused "unknown option $1" ;;
    esac
    shift
  done
  [ "$batch" = yes ] || [ -t 0 ] || misused "there is no terminal to ask on: add --batch"
  [ -n "$chosen" ] || [ -n "${HOME:-}" ] || misused "HOME is not set: name a folder with --prefix"
  chosen=${chosen:-${HOME:-}/ibm-wml-ce/$version}
  check_machine
  if [ "$batch" = yes ]; then
    check_prefix "$chosen" || fail "$why" "$fix"
    check_file
    check_signature
  else
    check_file
    check_signature
    ask "$chosen"
  fi
  install
  explain
}

main "$@"
exit
}
