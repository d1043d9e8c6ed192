# shellcheck shell=sh
# Sourced by a shell (sh, bash, zsh, ksh): it uses this environment until `deactivate`.
# An alias would stand before the function below. Of another environment only a function is run: a program of that
# name, as some have on PATH, could change nothing here.
unalias deactivate 2>/dev/null || :
# shellcheck disable=SC2218  # another environment's
case $(LC_ALL=C command -V deactivate 2>/dev/null || :) in
  "deactivate is a function"* | "deactivate is a shell function"*) deactivate || : ;;
esac

_wmlce_scripts() { # activate.d | deactivate.d: what packages want to do
  # by ls, because zsh stops at a pattern that matches nothing; names of packages' scripts have no blanks
  # shellcheck disable=SC2045,SC1090
  for _wmlce_script in $(command ls "$CONDA_PREFIX/etc/conda/$1" 2>/dev/null); do
    case $_wmlce_script in *.sh) . "$CONDA_PREFIX/etc/conda/$1/$_wmlce_script" ;; esac
  done
  unset _wmlce_script
}

deactivate() {
  _wmlce_scripts deactivate.d
  for _wmlce_name in PATH PS1 CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL; do
    if eval "[ -n \"\${_WMLCE_OLD_$_wmlce_name+set}\" ]"; then
      eval "$_wmlce_name=\$_WMLCE_OLD_$_wmlce_name"
    else
      unset "$_wmlce_name"
    fi
    unset "_WMLCE_OLD_$_wmlce_name"
  done
  unset _wmlce_name
  unset -f deactivate _wmlce_scripts
  hash -r 2>/dev/null || true
}

for _wmlce_name in PATH PS1 CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL; do
  if eval "[ -n \"\${$_wmlce_name+set}\" ]"; then eval "_WMLCE_OLD_$_wmlce_name=\$$_wmlce_name"; fi
done
unset _wmlce_name
CONDA_PREFIX='@PREFIX@'
CONDA_DEFAULT_ENV=$CONDA_PREFIX
CONDA_SHLVL=1
PATH=$CONDA_PREFIX/bin:$PATH
export PATH CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL
if [ -n "${PS1:-}" ]; then PS1="(@NAME@) $PS1"; fi
_wmlce_scripts activate.d
hash -r 2>/dev/null || true
