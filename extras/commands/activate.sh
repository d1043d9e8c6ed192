#!/bin/bash
# Job files for PowerAI 1.5 source /opt/DL/<component>/bin/<component>-activate. An active environment needs none of
# that; where this one is not active, its commands come first on PATH from here on.
if [ -z "${BASH_VERSION:-}${ZSH_VERSION:-}" ]; then
  # no other shell says which file it sources
  echo "<component>-activate needs bash or zsh: run the script by bash, or remove this line where the environment is active" >&2
  return 1
fi
_wml_ce_name=$(basename -- "${BASH_SOURCE[0]:-$0}")
_wml_ce_bin=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]:-$0}")" && pwd)
[ -x "$_wml_ce_bin/python" ] || _wml_ce_bin=$(cd -P -- "$_wml_ce_bin/../../bin" && pwd)
case :$PATH: in *":$_wml_ce_bin:"*) ;; *) export PATH="$_wml_ce_bin:$PATH" ;; esac
if [ -z "${WML_CE_ACTIVATED:-}" ]; then
  echo "$_wml_ce_name: components need no activation of their own: the environment is $(dirname -- "$_wml_ce_bin")" >&2
  export WML_CE_ACTIVATED=1
fi
unset _wml_ce_name _wml_ce_bin
