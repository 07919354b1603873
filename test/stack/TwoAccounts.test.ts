/**
 * Two accounts on one server, each with a grant and an installation of the host's GitHub App: two real agents at the
 * same time, with clones of private repositories, a tool that comments, branches and pull requests.
 *
 * Each agent also searches for credentials, and tries the other account's repository. Afterwards every token that was
 * issued is searched for in all that the server said, and in all that it left on disk.
 */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import { freePort } from "../harness/FreePort.ts"
import * as GitHubOrigin from "../harness/GitHubOrigin.ts"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as Images from "../harness/Images.ts"
import * as ProcessSampler from "../harness/ProcessSampler.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"

interface Account {
  readonly name: string
  readonly other: string
  readonly installationId: number
}

const accounts: ReadonlyArray<Account> = [
  { name: "acme", other: "beta", installationId: 77 },
  { name: "beta", other: "acme", installationId: 78 }
]

const uses = "fetch,push,pull_request,tool_read,tool_write"

/** Command of an agent: a thief's search, a comment on its own repository, one on the other's, and a change. */
const commandOf = ({ name, other }: Account) => {
  const comment = (owner: string) =>
    `cogni-tool exec github__comment '${JSON.stringify({
      repository: `${owner}/app`,
      number: 1,
      body: `from ${name}`
    })}'`
  return [
    "(env; cat /proc/*/environ; git config --list --show-origin; grep -rs ghs_ /workspace /tmp /home) 2>/dev/null |",
    "tr '\\0' '\\n' | grep -c 'ghs_\\|PRIVATE KEY' >found.txt;",
    `${comment(name)} >own.txt 2>&1; echo "own $?" >>codes.txt;`,
    `${comment(other)} >other.txt 2>&1; echo "other $?" >>codes.txt;`,
    `echo ${name} >NOTES.md`
  ].join(" ")
}

/** Beginnings of all tokens that an installation gets, and a line of the App's key. */
const planted: ReadonlyArray<ProcessSampler.Planted> = [
  ...accounts.map(({ installationId, name }) => ({ name, secret: `ghs_${installationId}_` })),
  { name: "the App's key", secret: GitHubOrigin.privateKey.split("\n")[3]! }
]

layer(CliProcess.layer, { excludeTestServices: true })("two accounts on one server", (it) => {
  it.effect("work at the same time, and neither sees, uses or causes the other's token", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const gitHub = yield* GitHubOrigin.acquire
      const { api, origin } = gitHub
      const tls = mkdtempSync(join(tmpdir(), "cogni-accounts-"))
      yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(tls, { recursive: true })))
      // Callers of a server may name repositories over https alone.
      const { authorityFile, url: forge } = yield* GitHubOrigin.secured(origin, tls)
      const model = yield* ScriptedModel.acquire(({ body }) => {
        const text = JSON.stringify(body)
        const account = accounts.find(({ name }) => text.includes(`Work for ${name}.`))!
        return text.includes('"tool_result"')
          ? { say: `${account.name} is done.` }
          : {
              call: [{ name: "Bash", args: { command: commandOf(account), description: "As asked" } }]
            }
      })
      const keyFile = join(cli.stateDirectory, "app.pem")
      writeFileSync(keyFile, GitHubOrigin.privateKey)
      chmodSync(keyFile, 0o600)
      const env = {
        COGNI_GITHUB_APP_ID: "12",
        COGNI_GITHUB_APP_KEY_FILE: keyFile,
        GITHUB_SERVER_URL: forge,
        COGNI_FORGES: `${new URL(forge).host}=private`,
        GIT_SSL_CAINFO: authorityFile,
        NODE_EXTRA_CA_CERTS: authorityFile
      }
      const port = yield* freePort
      const server = yield* cli.start(["serve", "--port", String(port)], {
        env: {
          ...env,
          SANDBOX_ENABLED: "true",
          COGNI_LLM_URL: model.url,
          COGNI_LLM_KEY: "sk-none",
          COGNI_LLM_MODEL: "scripted",
          COGNI_GATEWAY_IMAGE: Images.gateway,
          COGNI_CLAUDE_CODE_IMAGE: Images.ofAgent("claude-code")
        }
      })
      yield* server.said(/^listening on /mu)
      const sampler = yield* ProcessSampler.acquire(planted)

      const worked = yield* Effect.forEach(
        accounts,
        Effect.fnUntraced(function* (account) {
          const { installationId, name } = account
          const { path } = yield* origin.make(`${name}/app`, { "README.md": `${name}\n` })
          const url = `${forge}/${name}/app.git`
          const added = yield* cli.run(
            ["connections", "add", "github", "--account", name, "--github-app", String(installationId)],
            { env }
          )
          assert.strictEqual(added.code, 0, added.stderr)
          // As a careless operator: the connection of the account is what keeps them apart.
          const opened = `--repository ${forge}/** --tool github__* --connection github=${uses}`
          const granted = yield* cli.run(
            `grants create --user u --account ${name} --allow-sandbox ${opened}`.split(" ")
          )
          assert.strictEqual(granted.code, 0, granted.stderr)
          return { ...account, path, url, token: granted.stdout.toString("utf8").trim() }
        })
      ).pipe(
        Effect.flatMap(
          Effect.forEach(
            (account) =>
              Effect.promise(async () => {
                const headers = { authorization: `Bearer ${account.token}` }
                const answer = await fetch(`http://127.0.0.1:${port}/api/v1/ai/chat`, {
                  method: "POST",
                  headers,
                  body: JSON.stringify({
                    graphId: "sandbox:claude-code",
                    messages: [{ role: "user", content: `Work for ${account.name}.` }],
                    repository: { url: account.url, pullRequest: true },
                    toolIds: ["github__comment"]
                  })
                })
                const runId = answer.headers.get("x-cogni-run-id")
                const stream = await answer.text()
                const parts = ["", "/calls", "/tools", "/stdout", "/stderr", "/audit/entries", "/recording"]
                const views = await Promise.all(
                  parts.map((part) =>
                    fetch(`http://127.0.0.1:${port}/api/v1/runs/${runId}${part}`, { headers }).then((one) =>
                      one.text()
                    )
                  )
                )
                return { ...account, runId, stream, views }
              }),
            { concurrency: "unbounded" }
          )
        )
      )

      for (const { installationId, name, other, path, runId, stream } of worked) {
        assert.include(stream, `Branch: sandbox/${runId}`)
        const file = (of: string) => GitOrigin.git(path, "show", `sandbox/${runId}:${of}`)
        assert.strictEqual(yield* file("NOTES.md"), name)
        assert.strictEqual(yield* file("found.txt"), "0")
        assert.strictEqual(yield* file("codes.txt"), "own 0\nother 1", yield* file("own.txt"))
        assert.include(yield* file("other.txt"), "there is no credential for this call")
        assert.notInclude(yield* file("own.txt"), "ghs_")
        const used = GitHubOrigin.tokensOfGit(gitHub, name)
        assert.isNotEmpty(used)
        const commented = api.comments.filter(({ body }) => body === `from ${name}`)
        assert.deepStrictEqual(
          commented.map(({ repository }) => repository),
          [`${name}/app`],
          `nothing of ${name} reaches ${other}`
        )
        const [{ token }] = commented as unknown as readonly [{ readonly token: string }]
        assert.deepStrictEqual(
          [...used, ...api.tokens.filter((one) => one.token === token)].filter(
            (one) => one.installationId !== installationId || one.repositories.join() !== `${name}/app`
          ),
          []
        )
      }
      assert.deepStrictEqual(api.pulls.map(({ repository }) => repository).toSorted(), [
        "acme/app",
        "beta/app"
      ])
      assert.deepStrictEqual(api.complaints, [])
      assert.isTrue(
        api.tokens.every(({ revoked }) => revoked),
        "every token is invalid after its use"
      )

      // The audit of uses is by account.
      for (const { name, other, url } of worked) {
        const { stdout } = yield* cli.run(["connections", "uses", "--account", name, "--output", "json"])
        const text = stdout.toString("utf8")
        assert.include(text, url)
        assert.include(text, "CredentialMismatch", `the attempt of ${name} on ${other}`)
      }
      yield* server.kill("SIGTERM")
      const { stderr, stdout } = yield* server.ended
      const { processes, sightings } = yield* sampler.report
      assert.isAbove(processes, 0)
      assert.deepStrictEqual(sightings, [])
      rmSync(keyFile)
      const forms = ProcessSampler.formsOf(planted)
      const said = Object.fromEntries(
        worked.flatMap(({ name, stream, views }) =>
          [stream, ...views].map((text, at) => [`${name} ${at}`, text] as const)
        )
      )
      assert.deepStrictEqual(ProcessSampler.inTexts(forms, { ...said, stderr, stdout }), [])
      assert.deepStrictEqual(yield* ProcessSampler.inTree(forms, cli.stateDirectory), [])
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )
})
