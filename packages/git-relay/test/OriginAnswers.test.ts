/** Messages of origins in the words of git 2.39, and what they mean. */
import { assert, describe, it } from "@effect/vitest"
import * as OriginAnswers from "../src/internal/origin/OriginAnswers.ts"
import { Result, Schema } from "effect"

const a = "a".repeat(40)
const b = "b".repeat(40)

describe("OriginAnswers", () => {
  it("reads the references of an origin", () => {
    const told = OriginAnswers.parseAdvertised(
      `ref: refs/heads/trunk\tHEAD\n${a}\tHEAD\n${b}\trefs/heads/release/1\nwarning: x\n`
    )
    assert.strictEqual(told.headBranch, "trunk")
    assert.strictEqual(told.objectFormat, "sha1")
    assert.deepStrictEqual(
      OriginAnswers.baseOf(told, undefined) as unknown,
      Result.succeed({ branch: "trunk", commit: a })
    )
    assert.deepStrictEqual(
      OriginAnswers.baseOf(told, "release/1") as unknown,
      Result.succeed({ branch: "release/1", commit: b })
    )
    const missing = OriginAnswers.baseOf(told, "nope")
    assert.isTrue(Result.isFailure(missing) && missing.failure.fault === "base_missing")
  })

  it("distinguishes an empty origin from one whose HEAD names no branch, as far as possible", () => {
    const faultOf = (stdout: string, asked?: string) => {
      const answer = OriginAnswers.baseOf(OriginAnswers.parseAdvertised(stdout), asked)
      return Result.isFailure(answer) ? answer.failure.fault : undefined
    }
    assert.strictEqual(faultOf(""), "empty")
    assert.strictEqual(faultOf("", "main"), "base_missing")
    assert.strictEqual(faultOf(`${a}\tHEAD\n`), "base_unnamed")
  })

  it("recognizes SHA-256 by the length of an ID", () => {
    assert.strictEqual(OriginAnswers.parseAdvertised(`${"c".repeat(64)}\tHEAD\n`).objectFormat, "sha256")
  })

  const faults: ReadonlyArray<readonly [string, string, boolean]> = [
    ["fatal: unable to access 'https://x/': Could not resolve host: x", "unknown_host", true],
    ["fatal: unable to access 'https://x/': SSL certificate problem: self-signed certificate", "tls", false],
    [
      "fatal: unable to access 'https://x/': gnutls_handshake() failed: An unexpected TLS packet",
      "tls",
      false
    ],
    ["fatal: unable to access 'https://x/': The requested URL returned error: 301", "redirected", false],
    ["fatal: Authentication failed for 'https://x/'", "unauthorized", false],
    ["fatal: could not read Username for 'https://x': terminal prompts disabled", "unauthorized", false],
    ["fatal: unable to access 'https://x/': The requested URL returned error: 401", "unauthorized", false],
    ["fatal: unable to access 'https://x/': The requested URL returned error: 403", "forbidden", false],
    [
      "remote: Permission to acme/app.git denied to a-bot.; fatal: unable to access 'https://x/': The requested URL returned error: 403",
      "forbidden",
      false
    ],
    ["remote: Write access to repository not granted.; returned error: 403", "forbidden", false],
    ["fatal: repository 'https://x/a/b/' not found", "not_found", false],
    ["remote: Repository not found.; fatal: repository 'https://x/a/b/' not found", "not_found", false],
    ["fatal: unable to access 'https://x/': The requested URL returned error: 404", "not_found", false],
    ["fatal: not a git repository: '/srv/x'", "not_found", false],
    ["fatal: '/nowhere' does not appear to be a git repository", "not_found", false],
    [
      "fatal: unable to access 'https://x/acme/openssl/': The requested URL returned error: 403",
      "forbidden",
      false
    ],
    ["fatal: repository 'https://x/acme/redirects/' not found", "not_found", false],
    [
      "fatal: unable to access 'http://x/': Failed to connect to x port 9 after 0 ms: Connection refused",
      "unreachable",
      true
    ],
    ["fatal: unable to access 'https://x/': The requested URL returned error: 503", "unreachable", true],
    ["fatal: unable to access 'https://x/': The requested URL returned error: 429", "unreachable", true],
    ["fatal: unable to access 'https://x/': Recv failure: Connection reset by peer", "unreachable", true],
    ["fatal: unable to access 'https://x/': Empty reply from server", "unreachable", true],
    ["fatal: the remote end hung up unexpectedly", "unreachable", true],
    ["fatal: unable to access 'https://x/': Could not resolve proxy: proxy.example", "unknown_host", true],
    ["error: RPC failed; curl 56 Recv failure: Connection reset by peer", "unreachable", true],
    ["something that nobody has heard of", "other", false],
    ["", "other", false]
  ]
  it.each(faults)("classifies %j", (said, fault, isRetryable) => {
    const error = OriginAnswers.faultOf(said)
    assert.strictEqual(error.fault, fault)
    assert.strictEqual(error.isRetryable, isRetryable)
    assert.include(error.message, said)
    assert.isNotEmpty(error.remedy)
  })

  it("names the server without a token, or the token that it rejected, and nothing of git's prompt", () => {
    const server = "https://git.example:8443"
    const without = { server, hasCredential: false }
    const prompt =
      "error: unable to read askpass response from '/bin/false'; fatal: could not read Username for 'https://git.example:8443': terminal prompts disabled"
    const unset = OriginAnswers.faultOf(prompt, without)
    assert.strictEqual(
      unset.message,
      `the origin requires a credential, and none is configured for ${server}. Configure a token for ${server} (GitCredentials)`
    )
    const pushed = OriginAnswers.pushFaultOf(` ${prompt}`, without)
    assert.deepInclude(pushed, {
      fault: "unauthorized",
      detail: `the origin requires a credential, and none is configured for ${server}`
    })
    const hidden = OriginAnswers.faultOf("fatal: repository 'https://x/a/b/' not found", without)
    assert.include(hidden.message, "is not visible without a credential")
    assert.include(hidden.remedy, `configure a token for ${server}`)
    const rejected = OriginAnswers.faultOf(
      `remote: Invalid token; fatal: Authentication failed for 'https://x/'; ${prompt}`,
      { server, hasCredential: true }
    )
    assert.include(
      rejected.message,
      `rejected the token that is configured for ${server} (remote: Invalid token; `
    )
    assert.notMatch(rejected.message, /askpass|prompt/u)
    assert.include(
      OriginAnswers.faultOf(prompt, { server, hasCredential: true }).message,
      `configured for ${server}. Check`
    )
  })

  const pushes: ReadonlyArray<readonly [string, string]> = [
    ["[remote rejected] (shallow update not allowed)", "base_vanished"],
    ["[rejected] (stale info)", "raced"],
    ["[remote rejected] (cannot lock ref 'refs/heads/sandbox/x': reference already exists)", "raced"],
    ["remote: error: GH006: Protected branch update failed for refs/heads/sandbox/x.", "branch_protected"],
    ["remote: error: GH013: Repository rule violations found for refs/heads/sandbox/x.", "branch_protected"],
    ["[remote rejected] (pre-receive hook declined)", "rejected"],
    ["fatal: unable to access 'https://x/': The requested URL returned error: 403", "forbidden"],
    ["fatal: Authentication failed for 'https://x/'", "unauthorized"],
    ["send-pack: unexpected disconnect while reading sideband packet", "unreachable"],
    ["[rejected] (fetch first)", "raced"],
    ["[rejected] (non-fast-forward)", "raced"],
    ["[remote rejected] (protected branch hook declined)", "branch_protected"],
    [
      "remote: GitLab: You are not allowed to push code to protected branches on this project.; [remote rejected] (pre-receive hook declined)",
      "branch_protected"
    ],
    ["remote: error: did not receive expected object aaaa; [remote rejected] (shallow)", "base_vanished"],
    ["fatal: repository 'https://x/a/b/' not found", "not_found"],
    ["fatal: unable to access 'https://x/': Could not resolve host: x", "unreachable"],
    ["", "rejected"]
  ]
  it.each(pushes)("classifies the output of a push: %s", (said, fault) =>
    assert.strictEqual(OriginAnswers.pushFaultOf(said).fault, fault)
  )

  it("reads the result of one reference, whatever surrounds it", () => {
    const branch = "sandbox/run-000000000001"
    const stdout = `To https://x/\n*\t${a}:refs/heads/${branch}\t[new branch]\nDone\n`
    assert.deepStrictEqual(OriginAnswers.parsePush(stdout, branch), { flag: "*", summary: "[new branch]" })
    assert.strictEqual(OriginAnswers.parsePush(`!\t${a}:refs/heads/other\t[rejected]\n`, branch), undefined)
    assert.strictEqual(OriginAnswers.parsePush("", branch), undefined)
  })

  it.prop("has a fault and a remedy for any message", [Schema.String], ([said]) => {
    const error = OriginAnswers.faultOf(said)
    assert.isNotEmpty(error.remedy)
    assert.include(error.message, said)
    assert.isNotEmpty(OriginAnswers.pushFaultOf(said).remedy)
    // Lines that do not have the expected format are ignored.
    const told = OriginAnswers.parseAdvertised(`${said}\n${a}\trefs/heads/main\n`)
    assert.strictEqual(told.refs.get("refs/heads/main"), a)
    assert.strictEqual(OriginAnswers.parsePush(`${said}\n`, "sandbox/of-nobody"), undefined)
  })

  it("has one transport for each kind of origin", () => {
    assert.strictEqual(OriginAnswers.transportOf("https://x/a"), "https")
    assert.strictEqual(OriginAnswers.transportOf("http://127.0.0.1/a"), "http")
  })
})
