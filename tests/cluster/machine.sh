#!/usr/bin/env bash
# The inside of one machine of machines.py, run in namespaces of its own: makes what a machine has to
# itself, says "up", and becomes the machine's first process, sshd.
# Usage: machine.sh NAME FOLDER SHARED_PATH...   (FOLDER/home and FOLDER/tmp outlive a power cut)
set -euo pipefail
name=$1 folder=$2
shift 2
hostname "$name"
mount -t proc proc /proc
mount -t tmpfs -o size=2g,mode=1777 shm /dev/shm
# What all machines see is looked for under /tmp too: there it would be hidden by the machine's own.
for path in "$@"; do
  case $path in /tmp/*)
    mkdir -p "$folder$path"
    mount --bind "$path" "$folder$path" ;;
  esac
done
mount --bind /mnt/cache "$folder/home/.cache"
mount --rbind "$folder/home" /mnt/home
mount --rbind "$folder/tmp" /tmp
ip link set lo up
echo up
# Plasma's share of /dev/shm is the smallest that the mini task does with.
exec /usr/sbin/sshd -D -e -f /dev/null -h /mnt/hostkey -o PidFile=none -o UsePAM=no \
  -o PasswordAuthentication=no -o MaxStartups=100 -o MaxSessions=100 \
  -o SetEnv=RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES=268435456
