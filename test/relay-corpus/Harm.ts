/**
 * Names the commands of the careless host that each attack harms, so that its test runs no others before them. If they
 * do it no harm, the test fails.
 */
import type { Attack, Workspace } from "./Corpus.ts"

/** Groups of commands, in the order in which a careless host runs all of them. `Naive` defines them. */
export const flowNames = [
  "look",
  "stored",
  "headers",
  "asked",
  "urls",
  "taken",
  "copied",
  "watched",
  "finished",
  "reviewed",
  "pushed"
] as const

export type FlowName = (typeof flowNames)[number]

/** The first that most attacks of a kind harm. */
const usual: Readonly<Record<Attack, FlowName>> = {
  execution: "look",
  credential: "headers",
  "file-read": "stored",
  "file-write": "finished",
  ref: "pushed",
  content: "pushed",
  denial: "look"
}

/** The first that other attacks harm. */
const others: Partial<Record<FlowName, ReadonlyArray<string>>> = {
  look: ["escape sequences in a message"],
  stored: [
    "hook pre-push",
    "hook reference-transaction",
    "hook pre-auto-gc",
    "core.sshCommand",
    "core.gitProxy",
    "core.askPass",
    "credential.helper",
    "credential.<url>.helper",
    "push.gpgSign",
    "remote.origin.receivepack",
    "remote.origin.uploadpack",
    "remote.origin.vcs",
    "a remote of ext::sh",
    "url.ext::.insteadOf and protocol.allow",
    "core.alternateRefsCommand",
    "http.proxy",
    "http.<url>.proxy",
    "remote.origin.proxy",
    "http.curloptResolve",
    "http.<url>.curloptResolve",
    "credential.helper store, into the workspace",
    "tags are a link to refs of the host",
    "remote.origin.mirror",
    "remote.origin.push that deletes",
    "remote.origin.push with notes",
    "push.default matching",
    "work on main, checked out",
    "work on another branch of the origin",
    "a workflow hidden by a tag named like the branch",
    "a FIFO as .gitmodules",
    "a delta bomb"
  ],
  headers: [
    "repo is a link to a repository of the host",
    ".git is a link to one of the host",
    ".git is a file that names one of the host",
    "commondir of the host",
    "HEAD is a link to a ref of the host"
  ],
  asked: [
    "alias for a command that is not installed",
    "submodule.<name>.update",
    "branch.<b>.pushRemote",
    "remote.pushDefault",
    "credential.helper store, below the home of the agent",
    "a submodule of the attacker's server"
  ],
  urls: ["config is a link to a configuration of the host"],
  taken: ["a workflow hidden by a forged shallow file"],
  copied: [
    "a link to a file of the host, not committed",
    "a link to a directory of the host, not committed",
    "a committed link to a file of the host",
    "an untracked file of 100 GB"
  ],
  watched: ["core.pager", "pager.log", "interactive.diffFilter"],
  finished: [
    // Looking writes the index, and reads an unchanged file, only if a file is as new as the index.
    "hook post-index-change",
    "core.hooksPath below the worktree",
    "hooks as a link",
    "filter in info/attributes",
    "filter in core.attributesFile",
    "hook pre-commit",
    "hook prepare-commit-msg",
    "hook commit-msg",
    "hook post-commit",
    "hook post-rewrite",
    "core.editor",
    "gpg.ssh.program",
    "gpg.program and commit.gpgSign",
    "gpg.ssh.defaultKeyCommand",
    "trailer.<x>.command",
    "trailer.<x>.cmd",
    "filter.<x>.smudge",
    "merge.<driver>.driver",
    "merge.default",
    "core.worktree is a directory of the host"
  ],
  reviewed: ["hook post-checkout", "hook post-merge", "hook pre-merge-commit"]
}

const flows: ReadonlyMap<string, FlowName> = new Map(
  flowNames.flatMap((flow) => (others[flow] ?? []).map((name) => [name, flow] as const))
)

/** The names of all workspaces that are not of the usual flow of their kind. */
export const named: ReadonlyArray<string> = [...flows.keys()]

export const flowOf = ({ attack, name }: Workspace): FlowName => flows.get(name) ?? usual[attack]
