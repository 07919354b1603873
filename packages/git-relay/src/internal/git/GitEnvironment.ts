/**
 * Environment and configuration of every git on the host, built from nothing. Pure.
 *
 * git receives nothing from the environment of the host process, from user or system configuration, or from a
 * workspace. `GitEnvironment.test.ts` lists all values of both, so that every change shows in review.
 */

import { searchPath } from "@cogni/sandbox-host-files/HostProgram"

/** Network settings of the host that git cannot determine itself. */
export interface GitNetwork {
  /** The host's proxy for https, such as `http://proxy.internal:3128`. */
  readonly proxyUrl?: string | undefined
  /** Hosts that are reached without the proxy, as in `NO_PROXY`. */
  readonly noProxy?: string | undefined
  /** A file of certificate authorities, instead of the system's. */
  readonly caFile?: string | undefined
}

/**
 * The only transport that a git may use to reach an origin. Never `file`: git on the host opens no repository that the
 * host did not create.
 */
export type Transport = "https" | "http" | "none"

export interface GitCommand {
  /** Subcommand and its arguments. */
  readonly argv: ReadonlyArray<string>
  /** Git directory of a repository that the host created. */
  readonly gitDirectory?: string | undefined
  readonly workTree?: string | undefined
  readonly transport?: Transport | undefined
  /** Server to which the credential on descriptor 3 belongs, such as `https://github.com`. */
  readonly credentialServer?: string | undefined
  readonly network?: GitNetwork | undefined
  /** Addresses of the origin, so that its name is not resolved again: `HOST:PORT:ADDRESS,…`. */
  readonly resolve?: string | undefined
  /** Directory for new objects until they are accepted. The objects of `gitDirectory` stay readable. */
  readonly quarantine?: string | undefined
}

/**
 * Memory limit of git for one object; a delta bomb of 2 KiB requests gigabytes. Undocumented; see git's `wrapper.c`.
 */
const allocationLimit = "512m"

/** Complete environment of git, without the additions of a command. */
export const environment: Readonly<Record<string, string>> = {
  GIT_ALLOC_LIMIT: allocationLimit,
  GIT_ASKPASS: "/bin/false",
  GIT_ATTR_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_SYSTEM: "/dev/null",
  GIT_EDITOR: "/bin/false",
  GIT_NO_LAZY_FETCH: "1",
  GIT_NO_REPLACE_OBJECTS: "1",
  GIT_OPTIONAL_LOCKS: "0",
  GIT_PAGER: "cat",
  GIT_PROTOCOL_FROM_USER: "0",
  GIT_SSH_COMMAND: "/bin/false",
  GIT_TERMINAL_PROMPT: "0",
  HOME: "/nonexistent",
  LC_ALL: "C",
  PATH: searchPath,
  SSH_ASKPASS: "/bin/false",
  XDG_CONFIG_HOME: "/nonexistent"
}

/** Configuration of every command, before its own settings. */
export const configuration: Readonly<Record<string, string>> = {
  "checkout.workers": "0",
  "core.askPass": "",
  "core.attributesFile": "/dev/null",
  "core.commitGraph": "false",
  "core.excludesFile": "/dev/null",
  "core.fsmonitor": "false",
  "core.hooksPath": "/dev/null",
  "core.multiPackIndex": "false",
  "core.symlinks": "true",
  "credential.helper": "",
  "fetch.fsckObjects": "true",
  // Stores all objects in packs, because only packs are copied between repositories.
  "fetch.unpackLimit": "1",
  "gc.auto": "0",
  "http.followRedirects": "false",
  "maintenance.auto": "false",
  "pack.threads": "1",
  "protocol.allow": "never",
  "protocol.file.allow": "never",
  "push.followTags": "false",
  "push.gpgSign": "false",
  "push.recurseSubmodules": "no",
  "submodule.recurse": "false"
}

/**
 * Credential helper that prints descriptor 3, once. git calls it only for the server that it is configured for; `store`
 * and `erase` do nothing.
 */
export const credentialHelper = '!f() { test "$1" = get && cat <&3; }; f'

/** Returns all arguments of git: its options and configuration, then the command's own. */
export const argumentsOf = (command: GitCommand): ReadonlyArray<string> => {
  const { credentialServer, gitDirectory, network, resolve, transport = "none", workTree } = command
  const own: ReadonlyArray<readonly [name: string, value: string]> = [
    ...Object.entries(configuration),
    ...(transport === "none" ? [] : [[`protocol.${transport}.allow`, "always"] as const]),
    ...(credentialServer === undefined
      ? []
      : [[`credential.${credentialServer}.helper`, credentialHelper] as const]),
    ...(network?.proxyUrl === undefined || transport !== "https"
      ? []
      : [["http.proxy", network.proxyUrl] as const]),
    ...(resolve === undefined || transport === "none" ? [] : [["http.curloptResolve", resolve] as const]),
    ...(network?.caFile === undefined ? [] : [["http.sslCAInfo", network.caFile] as const])
  ]
  return [
    "--no-pager",
    ...(gitDirectory === undefined ? [] : [`--git-dir=${gitDirectory}`]),
    ...(workTree === undefined ? [] : [`--work-tree=${workTree}`]),
    ...own.flatMap(([name, value]) => ["-c", `${name}=${value}`]),
    ...command.argv
  ]
}

export const environmentOf = ({
  gitDirectory,
  network,
  quarantine
}: GitCommand): Readonly<Record<string, string>> => ({
  ...environment,
  ...(network?.noProxy === undefined ? {} : { no_proxy: network.noProxy }),
  ...(quarantine === undefined
    ? {}
    : {
        GIT_OBJECT_DIRECTORY: `${quarantine}/objects`,
        GIT_ALTERNATE_OBJECT_DIRECTORIES: `${gitDirectory}/objects`
      })
})
