/**
 * What every git of the host is started with: an environment and a configuration made from nothing. Pure.
 *
 * Nothing of the host process's own environment, of any user's or the system's configuration, and nothing of a workspace
 * reaches it. The whole of both is written out in `GitEnvironment.test.ts`, so that every change of it shows in review.
 */

import { searchPath } from "@cogni/sandbox-host-files/HostProgram"

/** Of the host's network, what git cannot know by itself. */
export interface GitNetwork {
  /** A proxy of the host's for https, such as `http://proxy.internal:3128`. */
  readonly proxyUrl?: string | undefined
  /** Hosts that are reached without it, as in `NO_PROXY`. */
  readonly noProxy?: string | undefined
  /** A file of certificate authorities, instead of the system's. */
  readonly caFile?: string | undefined
}

/**
 * How a git may speak to an origin; the only way it may. Never `file`: a git of the host opens no repository that it
 * did not make.
 */
export type Transport = "https" | "http" | "none"

export interface GitCommand {
  /** The subcommand and what follows. */
  readonly argv: ReadonlyArray<string>
  /** The repository, one of the host's own. */
  readonly gitDirectory?: string | undefined
  readonly workTree?: string | undefined
  readonly transport?: Transport | undefined
  /** Server to which the credential on descriptor 3 belongs, such as `https://github.com`. */
  readonly credentialServer?: string | undefined
  readonly network?: GitNetwork | undefined
  /** Where the origin is, so that no name is resolved a second time: `HOST:PORT:ADDRESS,…`. */
  readonly resolve?: string | undefined
  /** Objects go there, as long as nobody knows whether they may stay; those of `gitDirectory` are seen behind them. */
  readonly quarantine?: string | undefined
}

/** Memory that git may take for one object; a delta bomb of 2 KiB asks for gigabytes. Undocumented; git's `wrapper.c`. */
export const allocationLimit = "512m"

/** The whole environment. */
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

/** What every command is configured with, before anything of its own. */
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
  // Everything into packs: those are what is copied from one repository to the next.
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
 * Hands over what is on descriptor 3, once. git itself asks it only for the server it is configured for; `store` and
 * `erase` do nothing.
 */
export const credentialHelper = '!f() { test "$1" = get && cat <&3; }; f'

/** All arguments of git, its own and the command's. */
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
