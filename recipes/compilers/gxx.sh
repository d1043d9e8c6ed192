# Sourced on activation, after the C compiler's script (alphabetical order), whose flags it takes over.
# shellcheck shell=sh
export CXX=g++ CXXFLAGS="${CFLAGS}"
