# Sourced on activation. In a build the libraries of the host environment ($PREFIX) count, else those of the active one.
# The prefix maps keep paths of the building machine out of what is compiled.
# shellcheck shell=sh
_wmlce_prefix=${CONDA_PREFIX}
_wmlce_maps=
if [ "${CONDA_BUILD:-0}" = 1 ]; then
  _wmlce_prefix=${PREFIX}
  _wmlce_maps=" -ffile-prefix-map=${SRC_DIR}=. -ffile-prefix-map=${PREFIX}=/prefix"
fi
export CC=gcc AR=ar AS=as LD=ld NM=nm RANLIB=ranlib STRIP=strip OBJCOPY=objcopy
export CPPFLAGS="-DNDEBUG -I${_wmlce_prefix}/include"
export CFLAGS="-O2 -pipe -fPIC -fstack-protector-strong${_wmlce_maps} -I${_wmlce_prefix}/include"
# a DT_RPATH, unlike a DT_RUNPATH, also holds for the libraries of libraries, and LD_LIBRARY_PATH cannot override it
export LDFLAGS="-Wl,-O1 -Wl,--as-needed -Wl,--disable-new-dtags -Wl,-rpath,${_wmlce_prefix}/lib -Wl,-rpath-link,${_wmlce_prefix}/lib -L${_wmlce_prefix}/lib"
unset _wmlce_prefix _wmlce_maps
