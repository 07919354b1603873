/** Credentials in published content: known formats, and the run's own key. */
import { rmSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import { commit, put, work } from "./Making.ts"

const refused = (name: string, make: (context: Context) => Promise<string>): Workspace => ({
  name: `a secret: ${name}`,
  attack: "content",
  wants: "refused",
  make
})

/** Assembled from parts, so that no scanner reports this file as a leak. */
const githubToken = ["gh", "p_", "Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2"].join("")
const awsKey = ["aws_secret_access_key = ", "wJalrXUtnFEMIK7MDENGbPxRfiCY", "zQd8fK3pLm0T"].join("")
const awsId = ["AKI", "AQ3EGRTYUIOPASDF7"].join("")
const privateKey = [
  `-----BEGIN ${"RSA PRIVATE"} KEY-----`,
  ...Array.from(
    { length: 12 },
    (_, line) => `MIIEpAIBAAKCAQEA${"x9Yz".repeat(11)}${String(line).padStart(4, "0")}`
  ),
  `-----END ${"RSA PRIVATE"} KEY-----`
].join("\n")

const base64 = (text: string) => Buffer.from(text).toString("base64")

const file = (name: string, text: (context: Context) => string | Uint8Array): Workspace =>
  refused(name, (context) => {
    put(context, "config/settings.txt", text(context))
    return work(context)
  })

export const secrets: ReadonlyArray<Workspace> = [
  file("a GitHub token in a file", () => `token = ${githubToken}\n`),
  file(
    "a GitHub token after a comment that disables linters",
    () => `# secretlint-disable\ntoken = ${githubToken}\n`
  ),
  file("an AWS key in a file", () => `aws_access_key_id = ${awsId}\n${awsKey}\n`),
  file("a private key in a file", () => `${privateKey}\n`),
  refused("a GitHub token in a message", async (context) => {
    put(context, "notes.txt", "notes\n")
    return commit(context, `Use ${githubToken}`)
  }),
  refused("a private key that the next commit removes", async (context) => {
    put(context, "id_rsa", `${privateKey}\n`)
    await commit(context, "Add")
    rmSync(join(context.repository, "id_rsa"))
    return work(context)
  }),
  file("the run's own key", ({ runKey }) => `key = ${runKey}\n`),
  file("the run's own key in base64", ({ runKey }) => `key = ${base64(runKey)}\n`),
  file("the run's own key in base64, shifted by one byte", ({ runKey }) => `${base64(`:${runKey}:`)}\n`),
  file("the run's own key in hexadecimal", ({ runKey }) => `${Buffer.from(runKey).toString("hex")}\n`),
  file("the run's own key in a binary file", ({ runKey }) =>
    Buffer.concat([Buffer.from([0, 1, 2, 0xff]), Buffer.from(runKey), Buffer.alloc(9)])
  ),
  refused("the run's own key in a message", async (context) => {
    put(context, "notes.txt", "notes\n")
    return commit(context, `Notes\n\nkey ${context.runKey}`)
  }),
  refused("the run's own key in a file's name", (context) => {
    put(context, `config/${context.runKey}`, "x\n")
    return work(context)
  }),
  refused("the run's own key in a link's target", async (context) => {
    symlinkSync(context.runKey, join(context.repository, "link"))
    return work(context)
  })
]
