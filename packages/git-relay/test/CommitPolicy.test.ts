import * as CommitPolicy from "@cogni/sandbox-git-relay/CommitPolicy"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import * as CommitRules from "../src/internal/policy/CommitRules.ts"
import type * as GitObject from "../src/internal/git/GitObject.ts"

const { defaultPolicy } = CommitPolicy
const file = (mode = "100644") => ({ mode, id: "a".repeat(40) })
const added = (path: string, mode?: string): CommitRules.Change => ({
  path: Buffer.from(path, "utf8").toString("latin1"),
  before: undefined,
  after: file(mode)
})
const rulesOf = (change: CommitRules.Change, policy: Partial<CommitPolicy.Policy> = {}) =>
  CommitRules.make({ ...defaultPolicy, ...policy })
    .ofChange(change)
    .map(({ rule }) => rule)

describe("CommitPolicy", () => {
  it("has these defaults", () => {
    assert.deepStrictEqual(defaultPolicy, {
      commitsMax: 500,
      pathsMax: 3000,
      treesMax: 40_000,
      treeBytesMax: 16_777_216,
      treesBytesMax: 1_073_741_824,
      depthMax: 64,
      blobBytesMax: 50_000_000,
      totalBytesMax: 200_000_000,
      messageBytesMax: 65_536,
      protectedPaths: [
        ".github/workflows/**",
        ".github/actions/**",
        "CODEOWNERS",
        "{.github,.gitlab,.gitea,docs}/CODEOWNERS",
        ".gitlab-ci.{yml,yaml}",
        ".gitlab/ci/**",
        ".forgejo/**",
        ".gitea/workflows/**",
        ".gitea/actions/**",
        ".circleci/**",
        "**/Jenkinsfile",
        "**/Jenkinsfile.*",
        "{,.}azure-pipelines.{yml,yaml}",
        ".azure-pipelines/**",
        ".travis.{yml,yaml}",
        "bitbucket-pipelines.{yml,yaml}",
        ".drone.*",
        ".woodpecker*",
        ".woodpecker/**",
        ".buildkite/**",
        "{,.}appveyor.{yml,yaml}",
        ".cirrus.*",
        ".semaphore/**",
        ".teamcity/**",
        ".tekton/**",
        ".build.{yml,yaml}",
        ".builds/**",
        "buildspec.{yml,yaml}",
        "cloudbuild.{yml,yaml,json}",
        "netlify.toml",
        "vercel.json",
        "{,.}now.json",
        ".gitlab/agents/**",
        ".bitbucket/CODEOWNERS",
        ".github/dependabot.{yml,yaml}",
        ".github/settings.{yml,yaml}",
        ".asf.yaml",
        "{,.}renovate.{json,json5}",
        ".renovaterc{,.json,.json5}",
        "{.github,.gitlab}/renovate.{json,json5}",
        ".zuul.{yml,yaml}",
        ".zuul.d/**",
        "zuul.{yml,yaml}",
        "zuul.d/**",
        ".harness/**",
        ".azuredevops/**",
        ".pipelines/**",
        ".vsts-ci.{yml,yaml}",
        "amplify.{yml,yaml}",
        "bitrise.{yml,yaml}",
        "codemagic.{yml,yaml}",
        "bamboo-specs/**",
        ".devcontainer/**",
        ".devcontainer.json",
        ".prow.{yml,yaml}",
        ".prow/**",
        "screwdriver.{yml,yaml}",
        ".pre-commit-config.{yml,yaml}"
      ],
      protectedBranches: ["main", "master", "trunk", "develop", "production", "release/**"],
      submodules: "refuse",
      lfsPointers: "refuse",
      symlinks: "refuse",
      secrets: "refuse",
      authors: "any"
    })
    assert.deepStrictEqual(CommitPolicy.defaults, { default: defaultPolicy, repositories: {} })
    assert.strictEqual(
      CommitPolicy.digest(defaultPolicy),
      "fb8c5de3c2477ed8a50232a7dded781d9c8138f99c326e14968c0faef6270a5c"
    )
  })

  it("has a digest that depends on every value, but not on the order of fields", () => {
    const turned = Object.fromEntries(Object.entries(defaultPolicy).toReversed()) as CommitPolicy.Policy
    assert.strictEqual(CommitPolicy.digest(turned), CommitPolicy.digest(defaultPolicy))
    const others = [
      { ...defaultPolicy, depthMax: 63 },
      { ...defaultPolicy, protectedPaths: defaultPolicy.protectedPaths.slice(1) },
      { ...defaultPolicy, protectedPaths: defaultPolicy.protectedPaths.toReversed() },
      { ...defaultPolicy, secrets: "allow" as const }
    ].map(CommitPolicy.digest)
    assert.strictEqual(new Set([CommitPolicy.digest(defaultPolicy), ...others]).size, 5)
  })

  it.effect.each([
    { default: { protectedPath: [] } },
    { repositories: { "github.com/a/b": { commitMax: 1 } } },
    { default: { knownSecrets: "allow" } },
    { default: { commitsMax: 0 } },
    { default: { protectedPaths: ["!README.md"] } },
    { default: { protectedPaths: ["/ci/**"] } },
    { default: { protectedPaths: ["ci/"] } },
    { default: { authors: [] } },
    { default: { authors: ["agent@example.com"] } },
    { repositories: { "!github.com/a/b": {} } }
  ])("rejects %j", (input) =>
    Effect.map(Effect.exit(CommitPolicy.decode(input)), (exit) => assert.strictEqual(exit._tag, "Failure"))
  )

  it("applies the overrides for repositories that match a glob, and the last one wins", () => {
    const policies: CommitPolicy.PoliciesInput = {
      default: { commitsMax: 10 },
      repositories: {
        "github.com/acme/*": { submodules: "allow", depthMax: 8 },
        "GitHub.com/acme/app": { depthMax: 9, protectedPaths: ["ci/**"] },
        "/srv/git/**": { symlinks: "allow" }
      }
    }
    const of = (url: string) => {
      const { commitsMax, depthMax, protectedPaths, submodules, symlinks } = CommitPolicy.policyFor(
        policies,
        url
      )
      return [commitsMax, depthMax, protectedPaths.length, submodules, symlinks]
    }
    assert.deepStrictEqual(of("https://github.com/ACME/App.git/"), [10, 9, 1, "allow", "refuse"])
    assert.deepStrictEqual(of("https://github.com/acme/other"), [10, 8, 58, "allow", "refuse"])
    assert.deepStrictEqual(of("https://github.com.evil.example/acme/app"), [10, 64, 58, "refuse", "refuse"])
    assert.deepStrictEqual(of("https://github.com:8443/acme/app"), [10, 64, 58, "refuse", "refuse"])
    assert.deepStrictEqual(of("/srv/git/team/app.git"), [10, 64, 58, "refuse", "allow"])
    assert.deepStrictEqual(CommitPolicy.policyFor(undefined, "https://github.com/a/b"), defaultPolicy)
    assert.throws(() => CommitPolicy.policyFor({ default: { commitsMax: 0 } }, "https://github.com/a/b"))
  })

  it.each([
    ["sandbox/run-1", "main", true],
    ["sandbox/run-1", "sandbox/run-1", false],
    ["sandbox/Run-1", "sandbox/run-1", false],
    ["main", "develop", false],
    ["sandbox/a..b", "main", false],
    ["sandbox/x.lock", "main", false],
    ["sandbox/keep-1", "main", false],
    ["refs/heads/sandbox/run-1", "main", false]
  ])("a run may push to %s from %s: %s", (branch, base, allowed) => {
    const policy = { ...defaultPolicy, protectedBranches: ["SANDBOX/keep-*"] }
    const refused = CommitPolicy.branchAllowed(policy, branch, base)
    assert.strictEqual(refused === undefined, allowed)
    if (refused !== undefined) assert.isAbove(refused.detail.length * refused.remedy.length, 0)
  })
})

describe("protected paths", () => {
  it.each([
    ".github/workflows/ci.yml",
    ".github/workflows/deep/er/ci.yml",
    ".GitHub/Workflows/CI.yml",
    ".github./workflows /ci.yml",
    ".git\u200chub/workflows/ci.yml",
    ".github/workflows/a\nb.yml",
    ".github\\workflows\\ci.yml",
    ".gitlab-ci.yml",
    ".gitlab-ci.yml::$DATA",
    ".gitlab-ci.yml. .",
    ".ｇitlab-ci.yml",
    "CODEOWNERS",
    "docs/codeowners",
    ".github/CODEOWNERS",
    ".forgejo/workflows/x.yml",
    ".circleci/config.yml",
    "Jenkinsfile",
    "services/api/Jenkinsfile",
    "azure-pipelines.yml",
    ".travis.yml",
    "bitbucket-pipelines.yml",
    ".drone.yml",
    ".woodpecker.yml",
    ".woodpecker/build.yml",
    ".buildkite/pipeline.yml"
  ])("protects %j", (path) => {
    assert.include(rulesOf(added(path)), "protected-path")
    const gone = { path: added(path).path, before: file(), after: undefined }
    assert.include(rulesOf(gone), "protected-path")
    assert.notInclude(rulesOf(added(path), { protectedPaths: [] }), "protected-path")
  })

  it.each([
    "README.md",
    ".github/ISSUE_TEMPLATE/bug.md",
    "src/.github/workflows.ts",
    "docs/github/workflows/x",
    "lib/CODEOWNERS.md",
    "src/Jenkinsfile-parser.ts",
    ".gitignore",
    ".gitattributes",
    "ünïcode/日本語.txt"
  ])("does not protect %j", (path) => assert.deepStrictEqual(rulesOf(added(path)), []))

  it.each([".github", ".GITHUB", ".github/workflows", ".gitlab", ".circleci"])(
    "protects %s from a link or a submodule in its place",
    (path) => {
      assert.include(rulesOf(added(path, "120000")), "protected-path")
      assert.include(rulesOf(added(path, "160000")), "protected-path")
    }
  )

  it("also matches a pattern as it is written", () => {
    for (const path of ["ends./in dots", "ﬁle"])
      assert.deepStrictEqual(rulesOf(added(path), { protectedPaths: [path] }), ["protected-path"])
  })

  it.each([
    "netlify.toml",
    "vercel.json",
    ".gitlab/agents/production/config.yaml",
    ".bitbucket/CODEOWNERS",
    ".github/dependabot.yml",
    ".github/settings.yml",
    ".asf.yaml",
    "renovate.json",
    ".github/renovate.json5",
    ".renovaterc.json",
    ".zuul.yaml",
    "zuul.d/jobs.yaml",
    ".harness/pipeline.yaml",
    ".azuredevops/pipeline.yml",
    ".pipelines/build.yml",
    ".vsts-ci.yml",
    "amplify.yml",
    "bitrise.yml",
    "codemagic.yaml",
    "bamboo-specs/bamboo.yml",
    ".devcontainer/devcontainer.json",
    ".devcontainer.json",
    ".prow.yaml",
    "screwdriver.yaml",
    ".pre-commit-config.yaml",
    "NETLIFY.TOML"
  ])("refuses a change of %s, which builds, deploys or configures a service", (path) =>
    assert.deepStrictEqual(rulesOf(added(path)), ["protected-path"])
  )

  it("allows a link elsewhere", () => assert.deepStrictEqual(rulesOf(added("links/a", "120000")), []))

  const segment = Schema.Literals([
    ".github",
    ".GitHub",
    ".github ",
    "workflows",
    "Workflows.",
    "actions",
    "a",
    "ci.yml",
    "docs",
    "CODEOWNERS",
    "x\u00ad",
    "workflow\u200ds"
  ])
  it.prop(
    "agrees with a second implementation for any path",
    [Schema.NonEmptyArray(segment)],
    ([segments]) => {
      const protectedPaths = [".github/workflows/**", "docs/CODEOWNERS"]
      const plain = segments.map((part) => part.toLowerCase().replace(/[\u00ad\u200d]|[. ]+$/gu, ""))
      const expected =
        (plain[0] === ".github" && plain[1] === "workflows") ||
        (plain.length === 2 && plain[0] === "docs" && plain[1] === "codeowners")
      const found = rulesOf(added(segments.join("/")), { protectedPaths })
      assert.strictEqual(found.includes("protected-path"), expected, JSON.stringify(segments))
    },
    { arbitrary: { runs: 2000, seed: "protected" } }
  )
})

describe("entries", () => {
  it.each([
    ["dot-git", ".git/config"],
    ["dot-git", "a/.GIT/config"],
    ["dot-git", "GIT~1/config"],
    ["dot-git", ".g\u200cit/config"],
    ["dot-git", ".git./config"],
    ["dot-git", ".git . /config"],
    ["dot-git", ".git::$INDEX_ALLOCATION/config"],
    ["dot-git", "a\\.git\\config"],
    ["dot-git", "a/../b"],
    ["dot-git", "./b"],
    ["control-character", "a\u0001b"],
    ["control-character", "a\nb"],
    ["control-character", "a\u007f"],
    ["control-character", "a\u009bb"],
    ["control-character", "a\u202eb"],
    ["submodule", ".gitmodules"],
    ["submodule", "deep/er/.GitModules"],
    ["submodule", ".git\u200dmodules"],
    ["submodule", ".gitmodules "],
    ["submodule", ".gitmodules:x"],
    ["submodule", "GITMOD~1"],
    ["submodule", "gi7eba~2"],
    ["submodule", "gi7~1234"],
    ["lfs-config", ".lfsconfig"],
    ["lfs-config", "a/.LFSConfig."],
    ["lfs-config", "LFSCON~1"]
  ] as const)("reports %s for %j", (rule, path) => assert.deepStrictEqual(rulesOf(added(path)), [rule]))

  it.each([
    ".gitignore",
    ".github/x",
    "git",
    "agit~1",
    "gitmodules",
    "gitmod~5",
    "a..b/c",
    "...",
    ".lfsconfigs"
  ])("accepts %j", (path) => assert.deepStrictEqual(rulesOf(added(path)), []))

  it("allows the removal of an entry with a bad name", () => {
    for (const path of [".git/config", "a\u0001b"])
      assert.deepStrictEqual(rulesOf({ path, before: file(), after: undefined }), [])
    assert.deepStrictEqual(rulesOf({ path: ".gitmodules", before: file(), after: undefined }), ["submodule"])
  })

  it.each([
    ["100644", []],
    ["100664", []],
    ["100755", []],
    ["0100644", []],
    ["100600", ["mode"]],
    ["100777", ["mode"]],
    ["60000", ["mode"]],
    ["160000", ["submodule"]]
  ])("reports a mode of %s as %j", (mode, rules) => assert.deepStrictEqual(rulesOf(added("a", mode)), rules))

  it("allows submodules if configured, but only in git's own spelling", () => {
    const policy = { submodules: "allow" } as const
    assert.deepStrictEqual(rulesOf(added("lib", "160000"), policy), [])
    assert.deepStrictEqual(rulesOf({ path: "lib", before: file("160000"), after: undefined }, policy), [])
    assert.deepStrictEqual(rulesOf(added(".gitmodules"), policy), [])
    for (const path of [".GITMODULES", "a/.gitmodules", ".gitmodules."])
      assert.deepStrictEqual(rulesOf(added(path), policy), ["submodule"])
    assert.deepStrictEqual(rulesOf(added(".gitmodules", "120000"), policy), ["submodule"])
    const { ofGitmodules } = CommitRules.make(defaultPolicy)
    assert.lengthOf(ofGitmodules(Buffer.from('[submodule "a"]\n\tpath = a\n\turl = https://x/é\n')), 0)
    assert.lengthOf(ofGitmodules(Buffer.from('[submodule "a"]\n\tpath = "a\r"\n')), 1)
  })

  it.each([
    ["a", "b", undefined],
    ["a/b", "../c", undefined],
    ["a/b/c", "../../x/y", undefined],
    ["a/b", "..", undefined],
    ["a", "b\u00e9", undefined],
    ["a", "./b/./c/", undefined],
    ["a", ".github/x", undefined],
    ["a", "..b", undefined],
    ["a", "..", "allowable"],
    ["a/b", "../../c", "allowable"],
    ["a/l", "b/../..", "allowable"],
    ["a", "b/../c", "allowable"],
    ["a", "/etc/passwd", "allowable"],
    ["a", "C:\\x", "allowable"],
    ["a", "\\\\host\\x", "allowable"],
    ["a/b", "..\\..\\c", "allowable"],
    ["a", ".git/config", "never"],
    ["a/b", "../.GIT", "never"],
    ["a", "git~1/x", "never"],
    ["a", "", "never"],
    ["a", "b\0c", "never"]
  ])("checks a link %s to %j: %s", (path, target, refused) => {
    const of = (symlinks: "refuse" | "allow") =>
      CommitRules.make({ ...defaultPolicy, symlinks }).ofLink(path, target).length > 0
    assert.deepStrictEqual([of("refuse"), of("allow")], [refused !== undefined, refused === "never"])
  })
})

it("refuses a link whose target is longer than 4096 bytes", () => {
  const { ofLink } = CommitRules.make({ ...defaultPolicy, symlinks: "allow" })
  assert.deepStrictEqual(
    [4096, 4097].map((length) => ofLink("a", "b".repeat(length)).length),
    [0, 1]
  )
})

describe("commits", () => {
  const commit = (changes: Partial<GitObject.Commit> = {}): GitObject.Commit => ({
    tree: "a".repeat(40),
    parents: [],
    author: "A <a@b>",
    committer: "C <c@d>",
    header: "tree …",
    message: "fine\r\n\twork: ünïcode\n",
    ...changes
  })
  const rulesOf = (changes: Partial<GitObject.Commit>, policy: Partial<CommitPolicy.Policy> = {}) =>
    CommitRules.make({ ...defaultPolicy, ...policy })
      .ofCommit(commit(changes))
      .map(({ rule }) => rule)

  it("accepts an ordinary commit", () => assert.deepStrictEqual(rulesOf({}), []))

  it.each([
    { message: "a\u001b[2Jb" },
    { message: "a\0b" },
    { message: "a\u007fb" },
    { author: "A\u0007 <a@b>" },
    { committer: "C <c\u001b@d>" },
    { header: "gpgsig \u0001" }
  ])("refuses the control characters in %j", (changes) =>
    assert.deepStrictEqual(rulesOf(changes), ["message"])
  )

  it("refuses a message that is too long", () => {
    assert.deepStrictEqual(rulesOf({ message: "x".repeat(65_536) }), [])
    assert.deepStrictEqual(rulesOf({ message: "x".repeat(65_537) }), ["message-bytes"])
  })

  it("requires both names to be on the list, if there is one", () => {
    assert.deepStrictEqual(rulesOf({}, { authors: ["A <a@b>", "C <c@d>"] }), [])
    assert.deepStrictEqual(rulesOf({}, { authors: ["A <a@b>"] }), ["author"])
    assert.deepStrictEqual(rulesOf({}, { authors: ["C <c@d>"] }), ["author"])
    const latin1 = Buffer.from("Jürgen <j@b>", "utf8").toString("latin1")
    assert.deepStrictEqual(rulesOf({ author: latin1, committer: latin1 }, { authors: ["Jürgen <j@b>"] }), [])
  })

  it("has a remedy for every rule", () => {
    for (const rule of CommitPolicy.Rule.literals)
      assert.match(CommitRules.remedies[rule], /^[A-Z].*\.$/u, rule)
  })
})
