/** Files that take forever to read: FIFOs, devices, and settings that include each other. */
import { mkdirSync, symlinkSync, truncateSync } from "node:fs"
import { dirname, join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import { after, configure, inGit, pipe, put, remove } from "./Making.ts"

const denial = (
  name: string,
  spoil: (context: Context) => void | Promise<unknown>,
  wants: Workspace["wants"] = "unharmed"
): Workspace => ({ name, attack: "denial", wants, make: after(spoil) })

const piped = (path: string): Workspace =>
  denial(`a FIFO as .git/${path}`, (context) => pipe(inGit(context, path)))

/** Defines a workspace in which a file below `.git` is a link to an endless device. */
const zeros = (path: string): Workspace =>
  denial(`.git/${path} as a link to /dev/zero`, (context) => {
    remove(inGit(context, path))
    mkdirSync(dirname(inGit(context, path)), { recursive: true })
    symlinkSync("/dev/zero", inGit(context, path))
  })

export const pipes: ReadonlyArray<Workspace> = [
  piped("config"),
  piped("HEAD"),
  piped("packed-refs"),
  piped("index"),
  piped("objects/info/alternates"),
  piped("info/exclude"),
  piped("info/grafts"),
  piped("shallow"),
  piped("commondir"),
  denial("a FIFO as the branch", (context) => pipe(inGit(context, `refs/heads/${context.branch}`))),
  denial(
    "a FIFO as .gitattributes",
    (context) => pipe(join(context.repository, ".gitattributes")),
    "delivered"
  ),
  denial("a FIFO as .gitignore", (context) => pipe(join(context.repository, ".gitignore")), "delivered"),
  denial("a FIFO as .gitmodules", (context) => pipe(join(context.repository, ".gitmodules")), "delivered"),
  zeros("objects/info/alternates"),
  zeros("info/attributes"),
  denial("the branch as a link to /dev/zero", (context) => {
    remove(inGit(context, `refs/heads/${context.branch}`))
    symlinkSync("/dev/zero", inGit(context, `refs/heads/${context.branch}`))
  }),
  denial("settings that include each other", (context) => {
    for (let level = 0; level < 10; level++) {
      const text = Array.from({ length: 10 }, () => `[include]\n\tpath = level-${level + 1}\n`).join("")
      put(context, `.git/level-${level}`, text)
    }
    configure(context, "[include]\n\tpath = level-0")
  }),
  denial(
    "an untracked file of 100 GB",
    (context) => {
      put(context, "big.bin", "")
      truncateSync(join(context.repository, "big.bin"), 100_000_000_000)
    },
    "delivered"
  )
]
