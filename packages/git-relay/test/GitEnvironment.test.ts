/** Everything that a git of the host is started with, written out: every change of it shows here. */
import { assert, describe, it } from "@effect/vitest"
import * as CredentialUse from "../src/internal/git/CredentialUse.ts"
import * as GitEnvironment from "../src/internal/git/GitEnvironment.ts"
import { Redacted, Schema } from "effect"

const Command = Schema.Struct({
  argv: Schema.Array(Schema.String),
  gitDirectory: Schema.optionalKey(Schema.String),
  workTree: Schema.optionalKey(Schema.String),
  transport: Schema.optionalKey(Schema.Literals(["https", "http", "none"])),
  credentialServer: Schema.optionalKey(Schema.String),
  network: Schema.optionalKey(
    Schema.Struct({
      proxyUrl: Schema.optionalKey(Schema.String),
      caFile: Schema.optionalKey(Schema.String),
      noProxy: Schema.optionalKey(Schema.String)
    })
  )
})

/** The values of `-c`, in order, up to the subcommand. */
const configured = (argv: ReadonlyArray<string>, own: number): ReadonlyArray<string> =>
  argv.slice(0, argv.length - own).filter((_, index) => argv[index - 1] === "-c")

describe("GitEnvironment", () => {
  it("has exactly these variables", () => {
    assert.deepStrictEqual(GitEnvironment.environment, {
      GIT_ALLOC_LIMIT: "512m",
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
      PATH: "/usr/local/bin:/usr/bin:/bin",
      SSH_ASKPASS: "/bin/false",
      XDG_CONFIG_HOME: "/nonexistent"
    })
  })

  it("passes exactly these arguments to git, followed by those of the command", () => {
    assert.deepStrictEqual(
      GitEnvironment.argumentsOf({
        argv: ["ls-remote", "--", "https://git.example.com/a/b"],
        gitDirectory: "/relay/relay.git",
        workTree: "/relay/workspace/repo",
        transport: "https",
        credentialServer: "https://git.example.com",
        resolve: "git.example.com:443:1.1.1.1",
        network: { proxyUrl: "http://proxy.example:3128", caFile: "/etc/ca.pem" }
      }),
      [
        "--no-pager",
        "--git-dir=/relay/relay.git",
        "--work-tree=/relay/workspace/repo",
        ...[
          "checkout.workers=0",
          "core.askPass=",
          "core.attributesFile=/dev/null",
          "core.commitGraph=false",
          "core.excludesFile=/dev/null",
          "core.fsmonitor=false",
          "core.hooksPath=/dev/null",
          "core.multiPackIndex=false",
          "core.symlinks=true",
          "credential.helper=",
          "fetch.fsckObjects=true",
          "fetch.unpackLimit=1",
          "gc.auto=0",
          "http.followRedirects=false",
          "maintenance.auto=false",
          "pack.threads=1",
          "protocol.allow=never",
          "protocol.file.allow=never",
          "push.followTags=false",
          "push.gpgSign=false",
          "push.recurseSubmodules=no",
          "submodule.recurse=false",
          "protocol.https.allow=always",
          'credential.https://git.example.com.helper=!f() { test "$1" = get && cat <&3; }; f',
          "http.proxy=http://proxy.example:3128",
          "http.curloptResolve=git.example.com:443:1.1.1.1",
          "http.sslCAInfo=/etc/ca.pem"
        ].flatMap((value) => ["-c", value]),
        ..."ls-remote -- https://git.example.com/a/b".split(" ")
      ]
    )
  })

  it.prop("keeps all restrictions, whatever the command", [Command], ([command]) => {
    const argv = GitEnvironment.argumentsOf(command)
    const values = configured(argv, command.argv.length)
    const guards = Object.entries(GitEnvironment.configuration).map(([name, value]) => `${name}=${value}`)
    assert.deepStrictEqual(values.slice(0, guards.length), guards)
    // After them come one transport, one helper for one server, and the given network settings.
    const after = values
      .slice(guards.length)
      .filter((value) => !/^(?:http\.proxy|http\.curloptResolve|http\.sslCAInfo)=/u.test(value))
    const { credentialServer, transport = "none" } = command
    assert.deepStrictEqual(after, [
      ...(transport === "none" ? [] : [`protocol.${transport}.allow=always`]),
      ...(credentialServer === undefined
        ? []
        : [`credential.${credentialServer}.helper=${GitEnvironment.credentialHelper}`])
    ])
    assert.deepStrictEqual(argv.slice(argv.length - command.argv.length), command.argv)
  })

  it("separates objects in quarantine, and can read the repository's own", () => {
    const command = { argv: [], gitDirectory: "/relay/relay.git", quarantine: "/relay/relay.git/quarantine" }
    assert.deepStrictEqual(GitEnvironment.environmentOf(command), {
      ...GitEnvironment.environment,
      GIT_OBJECT_DIRECTORY: "/relay/relay.git/quarantine/objects",
      GIT_ALTERNATE_OBJECT_DIRECTORIES: "/relay/relay.git/objects"
    })
  })

  it.prop("changes nothing in the environment but the hosts without a proxy", [Command], ([command]) => {
    const { no_proxy, ...rest } = GitEnvironment.environmentOf(command)
    assert.deepStrictEqual(rest, GitEnvironment.environment)
    assert.strictEqual(no_proxy, command.network?.noProxy)
  })

  it.prop("no git of the host may open a repository by its path", [Command], ([command]) => {
    const values = configured(GitEnvironment.argumentsOf(command), command.argv.length)
    const ofFile = values.filter((value) => value.startsWith("protocol.file."))
    assert.deepStrictEqual(ofFile, ["protocol.file.allow=never"])
  })

  it.prop(
    "binds a credential to its server, and puts it into no argument or variable",
    [Command, Schema.String],
    ([command, text]) => {
      const secret = `ghs_${Buffer.from(text).toString("hex")}_planted`
      const forms = CredentialUse.formsOf({ username: "x-access-token", password: Redacted.make(secret) })
      const said = [
        ...GitEnvironment.argumentsOf(command),
        ...Object.values(GitEnvironment.environmentOf(command))
      ]
      for (const form of forms) assert.isFalse(said.some((part) => part.includes(form)))
      const helpers = said.filter((part) => part.includes(".helper=!"))
      assert.isAtMost(helpers.length, command.credentialServer === undefined ? 0 : 1)
    }
  )

  it("uses a proxy for https only, and not for connections that stay on this host", () => {
    const network = { proxyUrl: "http://proxy.example:3128" }
    for (const transport of ["http", "none"] as const)
      assert.notInclude(GitEnvironment.argumentsOf({ argv: [], transport, network }).join(" "), "proxy")
    assert.include(
      GitEnvironment.argumentsOf({ argv: [], transport: "https", network }),
      "http.proxy=http://proxy.example:3128"
    )
  })
})
