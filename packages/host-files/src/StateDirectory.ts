/**
 * The complete layout of the state directory (`$COGNI_STATE_DIR`). Pure.
 *
 *     <state directory>/
 *       cogni.db                     runs and grants, unless COGNI_DATABASE_URL names another database
 *       runs/<run id>/               made by the process that claims the ID
 *         record.json  stdout  stderr
 *         journal.jsonl              events of the run, while it runs and after it
 *         audit/audit.jsonl          written by the gateway; access.log and error.log by nginx
 *         …                          sockets and inputs, while the run is running
 *       unsettled/<run id>.<token>   marks of runs whose usage their observer has not accepted; claims/ of recoveries
 *       pending/<database>/<run id>  marks of runs that a database may not know completely
 *       workspaces/*.claim.json      directories of this host that runs work in
 *       pools/<random>.json          what the pool of a living process did
 *       waiting/<random>/            empty directories of sandboxes that wait for a run, and those of their runs
 *       proxies/<random>/            sockets and links to logs, of an nginx for many runs (--proxy nginx-shared)
 *       relays/<run id>/             files of a relay: state.json, repositories, a bundle
 *       mirrors/                     objects of origins, shared by relays
 *       packages/                    files of packages, by the hash that their registry states
 *       sessions/<digest>/           workspaces of chat sessions
 *       threads/<key>/               files and agents' sessions of remembered threads
 *       host-id                      random ID of this directory, so that no two hosts pass for one
 *       host-sessions/<session id>/  audits of the model calls that a chat makes on the host
 */
import { homedir } from "node:os"
import { join, resolve } from "node:path"

/** `$XDG_STATE_HOME/cogni-sandbox`, or below `~/.local/state`. */
export const defaultPath = (stateHome: string | undefined): string =>
  join(
    stateHome === undefined || stateHome === "" ? join(homedir(), ".local", "state") : stateHome,
    "cogni-sandbox"
  )

/** Absolute paths in a state directory. */
export const paths = (stateDirectory: string) => {
  const root = resolve(stateDirectory)
  return {
    database: join(root, "cogni.db"),
    runs: join(root, "runs"),
    pending: join(root, "pending"),
    unsettled: join(root, "unsettled"),
    claims: join(root, "workspaces"),
    waiting: join(root, "waiting"),
    pools: join(root, "pools"),
    proxies: join(root, "proxies"),
    relays: join(root, "relays"),
    mirrors: join(root, "mirrors"),
    packages: join(root, "packages"),
    sessions: join(root, "sessions"),
    threads: join(root, "threads"),
    hostSessions: join(root, "host-sessions"),
    hostId: join(root, "host-id")
  }
}

/** Names in the directory of a run that remain after its end. */
export const runEntries = {
  record: "record.json",
  stdout: "stdout",
  stderr: "stderr",
  journal: "journal.jsonl",
  audit: "audit"
} as const

/** The gateway's audit, below the directory of a run. */
export const auditLog = `${runEntries.audit}/audit.jsonl`

/** Paths in a relay's directory for one run. */
export const relayPaths = (directory: string) => ({
  state: join(directory, "state.json"),
  repository: join(directory, "relay.git"),
  workspace: join(directory, "workspace"),
  bundle: join(directory, "bundle"),
  /** A delivery in progress to a repository of this host. */
  delivery: join(directory, "delivery")
})
