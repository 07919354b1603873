/**
 * The directory of an agent's session, before a turn of its thread. The agent owns it, and earlier turns wrote to it.
 *
 * Pure: shell commands, in which paths are only ever parameters.
 */

/** Gives back permissions that an agent took away from itself, in the directory `path` and two above it. */
export const reopened = (path: string): string =>
  `for at in "\${${path}%/*/*}" "\${${path}%/*}" "$${path}"; do chmod u+rwx -- "$at" 2>/dev/null; done`

/** Ends the turn. Only the person who owns the thread can decide to lose its files. */
export const unprepared =
  '{ echo "the session of this thread cannot be prepared: an earlier turn changed its directory. ' +
  'Reset the thread" >&2; exit 125; }'

/** Makes a directory without some names, and becomes a command: `sh -c script sh DIRECTORY COUNT NAMES… COMMAND…`. */
export const script =
  `dir=$1 count=$2; shift 2; ${reopened("dir")}; mkdir -p -- "$dir" || ${unprepared}; ` +
  'while [ "$count" -gt 0 ]; do chmod -R u+rwX -- "$dir/$1" 2>/dev/null; ' +
  `rm -rf -- "$dir/$1" || ${unprepared}; shift; count=$((count - 1)); done; exec "$@"`
