/** Templates of an origin's bare repositories. They are made once and copied for each use. */
import { appendFileSync, cpSync, mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { run } from "./Making.ts"

/** `submodule`, `lfs`: the base branch already has one. `empty`: there are no commits. */
export type Kind = "plain" | "empty" | "sha256" | "submodule" | "lfs"

export const kinds: ReadonlyArray<Kind> = ["plain", "empty", "sha256", "submodule", "lfs"]

const data = (text: string) => `data ${Buffer.byteLength(text)}\n${text}\n`

const file = (path: string, text: string, mode = "100644") => `M ${mode} inline ${path}\n${data(text)}`

const commit = (ref: string, message: string, from?: string) =>
  `commit ${ref}
committer Seed <seed@example.invalid> 1750000000 +0000
${data(message)}${from === undefined ? "" : `from ${from}\n`}`

const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${"cd".repeat(32)}\nsize 4096\n`

const extra: Readonly<Record<Kind, string>> = {
  plain: "",
  empty: "",
  sha256: "",
  submodule:
    file(
      ".gitmodules",
      '[submodule "vendor/lib"]\n\tpath = vendor/lib\n\turl = https://example.invalid/lib.git\n'
    ) + `M 160000 ${"5".repeat(40)} vendor/lib\n`,
  lfs:
    file(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n") + file("assets/large.bin", pointer)
}

const number = (index: number) => String(index).padStart(2, "0")

const range = (count: number) => Array.from({ length: count }, (_, index) => number(index + 1))

/** Input for `git fast-import`. */
const story = (kind: Kind): string =>
  commit("refs/heads/main", "First") +
  file("README.md", "# Seed\n\nA repository to work on.\n") +
  file("LICENSE", "None\n") +
  file(".gitignore", "node_modules/\n") +
  file("package.json", '{ "name": "seed" }\n') +
  file("bin/start", "#!/bin/sh\nexec node src/module-01.ts\n", "100755") +
  range(12)
    .map((index) => file(`src/module-${index}.ts`, `export const module = ${index}\n`))
    .join("") +
  range(10)
    .map((index) => file(`docs/page-${index}.md`, `# Page ${index}\n`))
    .join("") +
  commit("refs/heads/main", "Second") +
  file(".github/workflows/ci.yml", "on: push\njobs: { test: { runs-on: ubuntu-latest } }\n") +
  file(".github/CODEOWNERS", "* @owners\n") +
  "reset refs/heads/release\nfrom refs/heads/main\n\n" +
  commit("refs/heads/main", "Third") +
  file("test/one.test.ts", "export {}\n") +
  extra[kind] +
  commit("refs/heads/next", "Others go on", "refs/heads/main") +
  file("src/module-01.ts", "export const module = 'changed by somebody else'\n") +
  "reset refs/tags/v1\nfrom refs/heads/release\n\n"

/** Hook that records push options, so that a test can detect them. */
const preReceive = `#!/bin/sh
i=0
while [ "$i" -lt "\${GIT_PUSH_OPTION_COUNT:-0}" ]; do
  eval "echo \\"\\$GIT_PUSH_OPTION_$i\\"" >> options
  i=$((i + 1))
done
exit 0
`

const configuration = `
[http]
	receivepack = true
[receive]
	advertisePushOptions = true
	autogc = false
	certNonceSeed = seed
[uploadpack]
	allowFilter = true
[gc]
	auto = 0
[core]
	logAllRefUpdates = false
`

/** Makes the template of a kind, and returns its path. */
export const make = async (directory: string, kind: Kind): Promise<string> => {
  const path = join(directory, `${kind}.git`)
  const format = kind === "sha256" ? "sha256" : "sha1"
  await run(["git", "init", "-q", "--bare", "--template=", "-b", "main", `--object-format=${format}`, path])
  if (kind !== "empty") {
    await run(["git", "-C", path, "fast-import", "--quiet"], { input: story(kind) })
  }
  mkdirSync(join(path, "hooks"))
  writeFileSync(join(path, "hooks/pre-receive"), preReceive, { mode: 0o755 })
  appendFileSync(join(path, "config"), configuration)
  return path
}

/** Copies a template. The asynchronous function takes 25 times as much of the processor. */
export const copy = (template: string, path: string): void => cpSync(template, path, { recursive: true })
