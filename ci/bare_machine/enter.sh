#!/usr/bin/env bash
# Started as process 1 of new mount, process and IPC namespaces: makes SYSTEM the root of the file system and runs
# COMMAND in it. Everything that is mounted or started here ends with it.
#   enter.sh SYSTEM UID GID BINDS [FROM TO]... COMMAND...     BINDS: how many pairs FROM TO follow, mounted read-only
# It pivots instead of calling chroot: the kernel lets no ordinary user make namespaces in a chroot, and sandboxed
# builds need them.
set -eu
system=$1 uid=$2 gid=$3 binds=$4
shift 4

# a network of its own starts with its loopback down, which no machine without a network has (SIOCSIFFLAGS, IFF_UP)
python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 0x1))'

mount --make-rprivate /
mount --bind "$system" "$system"
mount -t proc -o nosuid,nodev,noexec proc "$system/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$system/sys"
mount -t tmpfs -o mode=755,nosuid,noexec tmpfs "$system/run"
mount -t tmpfs -o mode=755,nosuid,noexec tmpfs "$system/dev"
for device in null zero full random urandom tty fuse; do
  [ -e "/dev/$device" ] || continue
  : >"$system/dev/$device"
  mount --bind "/dev/$device" "$system/dev/$device"
done
mkdir "$system/dev/pts" "$system/dev/shm" "$system/run/lock"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$system/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$system/dev/shm"
ln -s pts/ptmx "$system/dev/ptmx"
ln -s /proc/self/fd "$system/dev/fd"
for number_name in 0:stdin 1:stdout 2:stderr; do
  ln -s "/proc/self/fd/${number_name%:*}" "$system/dev/${number_name#*:}"
done
while [ "$binds" -gt 0 ]; do
  if [ -d "$1" ]; then
    mkdir -p "$system$2"
  else
    mkdir -p "$(dirname "$system$2")"
    [ -e "$system$2" ] || : >"$system$2"
  fi
  mount --bind "$1" "$system$2"
  mount -o remount,bind,ro "$system$2"
  shift 2
  binds=$((binds - 1))
done

mkdir "$system/run/outside"
cd "$system"
pivot_root . run/outside
cd /
umount -l /run/outside
rmdir /run/outside
hash -r

# Process 1 stays this shell: it collects orphans, and passes on signals, which the kernel keeps from a process 1 that
# does not ask for them. Background processes of a shell ignore interrupts unless they are told not to.
setpriv --reuid="$uid" --regid="$gid" --init-groups env --default-signal=INT,QUIT "$@" <&0 &
child=$!
trap 'kill -TERM "$child" 2>/dev/null || true' TERM INT HUP
code=0
while :; do
  wait "$child" && code=0 || code=$?
  kill -0 "$child" 2>/dev/null || break
done
exit "$code"
