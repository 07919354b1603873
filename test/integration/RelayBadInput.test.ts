/**
 * Faulty origins and unusual repositories. Each has a clear error or the right outcome, and nothing is lost or left
 * behind.
 */
import { assert, it } from "@effect/vitest"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import { GitRelay, RelayObserver, type RelayProgress } from "@cogni/sandbox-git-relay/GitRelay"
import { type CloneRequest } from "@cogni/sandbox-git-relay/RelaySteps"
import type { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import { BranchName } from "@cogni/sandbox-git-relay/Refs"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import type * as DeliveryRecord from "@cogni/sandbox-git-relay/DeliveryRecord"
import { Context, Effect, Layer, Redacted, Tracer } from "effect"
import { existsSync } from "node:fs"
import * as GitOrigin from "../harness/GitOrigin.ts"
import { serve } from "../harness/LocalServer.ts"
import * as RelayHarness from "../harness/RelayHarness.ts"

const token = "ghs_planted-for-the-relay.0123456789"

class Origin extends Context.Service<Origin, GitOrigin.GitOrigin>()("test/Origin") {
  static readonly layer = Layer.effect(Origin, GitOrigin.acquire({ password: token }))
}

const credentials = Layer.unwrap(
  Effect.map(Origin, ({ url }) =>
    GitCredentials.layerTokens([{ server: url, username: "x-access-token", token: Redacted.make(token) }])
  )
)

const layers = Layer.unwrap(
  Effect.map(Effect.context<Origin>(), (context) =>
    RelayHarness.layer({}, Layer.provide(credentials, Layer.succeedContext(context)))
  )
).pipe(Layer.provideMerge(Origin.layer))

const files = { "README.md": "hello\n", "src/app.js": "run()\n" }

const request = Effect.fnUntraced(function* (url: string, more: Partial<CloneRequest> = {}) {
  return { runId: yield* RelayHarness.runId, url, ...more } satisfies CloneRequest
})

/** Clones, runs an agent's script, and delivers. */
const lived = Effect.fnUntraced(function* (
  url: string,
  script: string,
  more: Partial<CloneRequest> = {},
  meanwhile: Effect.Effect<unknown> = Effect.void
) {
  const asked = yield* request(url, more)
  const { delivery } = yield* RelayRun.around({ ...asked, deliver: "push" }, (clone, began) =>
    Effect.gen(function* () {
      yield* began
      yield* RelayHarness.work(clone, script)
      yield* meanwhile
      return { succeeded: true }
    })
  )
  return { delivery, runId: asked.runId }
})

const commit = (name: string) => `echo change > ${name}; git add --all; git commit -qm 'change ${name}'`

const failed = (delivery: DeliveryRecord.Delivery): GitRelayError => {
  if (delivery._tag !== "Failed") return assert.fail(`expected a refusal, got ${delivery._tag}`)
  return delivery.error
}

/** Returns the error of a clone that must fail. Nothing may be kept, and the error must not contain the token. */
const refusedClone = Effect.fnUntraced(function* (url: string, more: Partial<CloneRequest> = {}) {
  const relay = yield* GitRelay
  const error = yield* Effect.flip(Effect.scoped(Effect.flatMap(request(url, more), relay.clone)))
  assert.deepStrictEqual(
    (yield* relay.kept).filter(({ runId }) => runId === error.runId),
    []
  )
  assert.notInclude(error.message, token)
  return error
})

const faultOf = ({ reason }: GitRelayError) => ("fault" in reason ? reason.fault : reason._tag)

it.layer(layers, { excludeTestServices: true })("a relay with bad input", (it) => {
  it.effect("a failed clone reports the fault of the origin", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const { url } = yield* origin.make("bad/origin", files)
      const rows: ReadonlyArray<readonly [number, Record<string, string>, string]> = [
        [401, {}, "unauthorized"],
        [403, {}, "forbidden"],
        [404, {}, "not_found"],
        [500, {}, "unreachable"],
        [503, {}, "unreachable"]
      ]
      for (const [status, headers, fault] of rows) {
        origin.trouble = () => ({ _tag: "Status", status, headers })
        const error = yield* refusedClone(url)
        assert.strictEqual(faultOf(error), fault, error.message)
      }
      origin.trouble = () => undefined
      assert.strictEqual(faultOf(yield* refusedClone("https://nowhere.invalid/a/b")), "unknown_host")
      assert.strictEqual(faultOf(yield* refusedClone("http://127.0.0.1:9/a/b")), "unreachable")
      assert.strictEqual(faultOf(yield* refusedClone(url.replace("http:", "https:"))), "tls")
      assert.strictEqual(faultOf(yield* refusedClone(`${origin.url}/bad/nothing.git`)), "not_found")
      assert.strictEqual(faultOf(yield* refusedClone("/proc/nowhere/at/all")), "not_found")
    })
  )

  it.effect("a redirect is not followed, and the token is not sent", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const { url } = yield* origin.make("bad/redirect", files)
      const heard: Array<string | undefined> = []
      const elsewhere = yield* serve((incoming, response) => {
        heard.push(incoming.headers.authorization)
        response.writeHead(401, { "www-authenticate": "Basic" }).end()
      })
      origin.trouble = ({ path }) => ({
        _tag: "Status",
        status: 302,
        headers: { location: `${elsewhere}${path}` }
      })
      const error = yield* refusedClone(url)
      origin.trouble = () => undefined
      assert.strictEqual(faultOf(error), "redirected", error.message)
      assert.deepStrictEqual(heard, [])
    }).pipe(Effect.scoped)
  )

  it.effect("a token is sent to its own server only", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const other = yield* GitOrigin.acquire()
      const relay = yield* GitRelay
      for (const { url } of [
        yield* other.make("open/repository", files),
        yield* origin.make("closed/repository", files)
      ]) {
        const clone = yield* Effect.flatMap(request(url), relay.clone)
        yield* relay.discard(clone.request.runId)
      }
      assert.isAbove(other.received.length, 0)
      assert.isTrue(other.received.every(({ authorization }) => authorization === undefined))
      assert.isTrue(origin.received.some(({ authorization }) => authorization !== undefined))
    }).pipe(Effect.scoped)
  )

  it.effect("spans and progress are reported without the token", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const { url } = yield* origin.make("bad/traced", files)
      const spans: Array<Tracer.NativeSpan> = []
      const told: Array<RelayProgress> = []
      const tracer = Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        }
      })
      const { delivery } = yield* lived(url, commit("traced.txt")).pipe(
        Effect.withTracer(tracer),
        Effect.provideService(RelayObserver, (progress) => Effect.sync(() => void told.push(progress)))
      )
      assert.strictEqual(delivery._tag, "Pushed")
      for (const name of ["clone", "collect", "check", "push"])
        assert.isTrue(
          spans.some((span) => span.name === `GitRelay.${name}`),
          name
        )
      assert.isTrue(told.some(({ operation, text }) => operation === "clone" && text.includes("%")))
      const all = JSON.stringify(
        [told, spans.map((span) => [span.name, [...span.attributes], span.events, span.status])],
        (_, value: unknown) => (typeof value === "bigint" ? String(value) : value)
      )
      for (const form of [token, Buffer.from(token).toString("base64"), encodeURIComponent(token)])
        assert.notInclude(all, form)
    })
  )

  it.effect("an empty repository, a missing base and a dangling HEAD have their own faults", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const empty = yield* origin.make("bad/empty")
      assert.strictEqual(faultOf(yield* refusedClone(empty.url)), "empty")
      const { path, url } = yield* origin.make("bad/head", files)
      assert.strictEqual(faultOf(yield* refusedClone(url, { baseBranch: "release" })), "base_missing")
      yield* GitOrigin.git(path, "symbolic-ref", "HEAD", "refs/heads/gone")
      assert.include(["base_unnamed", "empty"], faultOf(yield* refusedClone(url)))
      const relay = yield* GitRelay
      const clone = yield* Effect.flatMap(request(url, { baseBranch: "main" }), relay.clone)
      assert.strictEqual(clone.baseBranch, "main")
      yield* relay.discard(clone.request.runId)
    }).pipe(Effect.scoped)
  )

  it.effect("a base that is rewritten during the run fails with base_vanished", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const { path, url } = yield* origin.make("bad/vanished", files)
      const rewritten = Effect.gen(function* () {
        const tree = yield* GitOrigin.git(path, "hash-object", "-w", "-t", "tree", "/dev/null")
        const root = yield* GitOrigin.git(path, "commit-tree", tree, "-m", "rewritten")
        yield* GitOrigin.git(path, "update-ref", "refs/heads/main", root)
        yield* GitOrigin.git(path, "reflog", "expire", "--expire=now", "--all")
        yield* GitOrigin.git(path, "gc", "-q", "--prune=now")
      })
      const { delivery, runId } = yield* lived(url, commit("a.txt"), {}, rewritten)
      const error = failed(delivery)
      assert.strictEqual(faultOf(error), "base_vanished", error.message)
      assert.isTrue(existsSync((error.reason as { keptAt: string }).keptAt))
      yield* (yield* GitRelay).discard(runId)
    })
  )

  it.effect(
    "an existing branch with other content is untouched, and the commits can be pushed under another name",
    () =>
      Effect.gen(function* () {
        const origin = yield* Origin
        const relay = yield* GitRelay
        const { path, url } = yield* origin.make("bad/exists", files)
        const branch = BranchName.make("sandbox/taken")
        const first = yield* lived(url, commit("mine.txt"), { branch })
        assert.strictEqual(first.delivery._tag, "Pushed")
        const before = yield* GitOrigin.branchAt(path, branch)
        const { delivery, runId } = yield* lived(url, commit("other.txt"), { branch })
        assert.strictEqual(faultOf(failed(delivery)), "branch_exists")
        assert.strictEqual(yield* GitOrigin.branchAt(path, branch), before)
        const retried = yield* Effect.scoped(
          Effect.flatMap(relay.reopen(runId, { branch: BranchName.make("sandbox/second") }), (clone) =>
            RelayRun.deliver(clone, { deliver: "push" })
          )
        )
        assert.strictEqual(retried._tag, "Pushed")
        assert.isDefined(yield* GitOrigin.branchAt(path, "sandbox/second"))
        // The same content under the same name is not pushed twice.
        const again = yield* lived(url, `${commit("mine.txt")}; sleep 0.01`, { branch })
        if (again.delivery._tag !== "Pushed") return assert.fail(failed(again.delivery).message)
        assert.isTrue(again.delivery.unchanged)
        assert.strictEqual(yield* GitOrigin.branchAt(path, branch), before)
      })
  )

  it.effect("a push does not overwrite a concurrent push", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const { path, url } = yield* origin.make("bad/raced", files)
      const branch = BranchName.make("sandbox/raced")
      // Runs after the relay has read the refs, and before its push is applied.
      yield* GitOrigin.hook(
        path,
        "pre-receive",
        `unset GIT_QUARANTINE_PATH; git update-ref refs/heads/${branch} refs/heads/main`
      )
      const { delivery, runId } = yield* lived(url, commit("late.txt"), { branch })
      const error = failed(delivery)
      assert.include(["raced", "branch_exists"], faultOf(error), error.message)
      assert.strictEqual(yield* GitOrigin.branchAt(path, branch), yield* GitOrigin.branchAt(path, "main"))
      yield* (yield* GitRelay).discard(runId)
    })
  )

  it.effect(
    "a push is completed by a retry after a broken connection, and is done if only its answer was lost",
    () =>
      Effect.gen(function* () {
        const origin = yield* Origin
        const relay = yield* GitRelay
        const { path, url } = yield* origin.make("bad/broken", files)
        const breaking = (trouble: GitOrigin.Trouble) => {
          origin.trouble = ({ method, path: asked }) =>
            method === "POST" && asked.endsWith("/git-receive-pack") ? trouble : undefined
        }
        breaking({ _tag: "CutRequest", afterBytes: 100 })
        const cut = yield* lived(url, "head -c 200000 /dev/urandom > big; git add --all; git commit -qm big")
        assert.strictEqual(faultOf(failed(cut.delivery)), "unreachable", failed(cut.delivery).message)
        assert.isTrue(failed(cut.delivery).isRetryable)
        assert.isUndefined(yield* GitOrigin.branchAt(path, `sandbox/${cut.runId}`))
        origin.trouble = () => undefined
        const retried = yield* Effect.scoped(
          Effect.flatMap(relay.reopen(cut.runId), (clone) => RelayRun.deliver(clone, { deliver: "push" }))
        )
        assert.strictEqual(retried._tag, "Pushed")

        breaking({ _tag: "CutAnswer" })
        const lost = yield* lived(url, commit("lost.txt"))
        origin.trouble = () => undefined
        assert.strictEqual(lost.delivery._tag, "Pushed")
        assert.isDefined(yield* GitOrigin.branchAt(path, `sandbox/${lost.runId}`))
        assert.deepStrictEqual(yield* relay.kept, [])
      })
  )

  it.effect("a push to a protected branch fails with branch_protected", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const { path, url } = yield* origin.make("bad/protected", files)
      yield* GitOrigin.hook(
        path,
        "pre-receive",
        "echo 'GH006: Protected branch update failed for refs/heads/sandbox' >&2; exit 1"
      )
      const { delivery, runId } = yield* lived(url, commit("p.txt"))
      assert.strictEqual(faultOf(failed(delivery)), "branch_protected", failed(delivery).message)
      yield* (yield* GitRelay).discard(runId)
    })
  )

  it.effect("commits survive what an agent does to its repository, as far as git can recover them", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const { path, url } = yield* origin.make("bad/agent", files)
      const pushed = Effect.fnUntraced(function* (script: string) {
        const { delivery, runId } = yield* lived(url, script)
        if (delivery._tag !== "Pushed") return assert.fail(`${script}: ${JSON.stringify(delivery)}`)
        assert.strictEqual(yield* GitOrigin.branchAt(path, `sandbox/${runId}`), delivery.tip, script)
      })
      yield* pushed(`git branch -m elsewhere; ${commit("a")}`)
      yield* pushed(`git checkout -q --detach; ${commit("b")}`)
      yield* pushed(`git checkout -q -b beside; ${commit("c")}`)
      yield* pushed(`${commit("d")}; git gc -q; git pack-refs --all`)
      yield* pushed(`${commit("LÄRM.txt")}; ${commit("lärm.txt")}; ${commit("Readme.md")}`)
      yield* pushed(
        String.raw`f=$(printf 'latin\351.txt'); echo x > "$f"; git add --all; git commit -qm latin`
      )
      const nothing = yield* lived(url, "echo dirty > not-committed.txt")
      assert.strictEqual(nothing.delivery._tag, "Skipped")
      for (const script of [
        "rm -rf .git",
        "rm -rf .git/objects",
        "git checkout -q --orphan alone; git rm -rfq .; echo x > only; git add only; git commit -qm alone; git branch -M $(git for-each-ref --format='%(refname:short)' refs/heads/sandbox)"
      ]) {
        const { delivery, runId } = yield* lived(url, script)
        const { reason } = failed(delivery)
        assert.include(["BundleRefused", "PolicyRefused"], reason._tag, script)
        yield* (yield* GitRelay).discard(runId)
      }
      assert.deepStrictEqual(yield* (yield* GitRelay).kept, [])
    })
  )

  it.effect("a SHA-256 repository is delivered", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const { path, url } = yield* origin.make("bad/sha256", files, { objectFormat: "sha256" })
      const { delivery, runId } = yield* lived(url, commit("a.txt"))
      if (delivery._tag !== "Pushed") return assert.fail(JSON.stringify(delivery))
      assert.lengthOf(delivery.tip, 64)
      assert.strictEqual(yield* GitOrigin.branchAt(path, `sandbox/${runId}`), delivery.tip)
    })
  )

  it.effect("existing submodules and LFS pointers can be kept, and changed submodules are refused", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${"a".repeat(64)}\nsize 12\n`
      const { path, url } = yield* origin.make("bad/submodule", {
        ...files,
        "big.bin": pointer,
        ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
        ".gitmodules": '[submodule "sub"]\n\tpath = sub\n\turl = https://git.example.com/sub.git\n'
      })
      const main = yield* GitOrigin.branchAt(path, "main")
      const index = { GIT_INDEX_FILE: `${path}/seed-index` }
      yield* GitOrigin.gitWith(index, path, "read-tree", "main")
      yield* GitOrigin.gitWith(index, path, "update-index", "--add", "--cacheinfo", `160000,${main},sub`)
      const tree = yield* GitOrigin.gitWith(index, path, "write-tree")
      const linked = yield* GitOrigin.git(path, "commit-tree", tree, "-p", "main", "-m", "a submodule")
      yield* GitOrigin.git(path, "update-ref", "refs/heads/main", linked)
      const moved = yield* lived(url, "git mv big.bin other.bin; git commit -qm moved")
      if (moved.delivery._tag !== "Pushed") return assert.fail(failed(moved.delivery).message)
      const changed = yield* lived(url, "echo '[x]' >> .gitmodules; git commit -qam modules")
      assert.include(failed(changed.delivery).message, "submodule")
      yield* (yield* GitRelay).discard(changed.runId)
    })
  )

  it.effect("too many changed paths are refused by name, and the commits are kept", () =>
    Effect.gen(function* () {
      const origin = yield* Origin
      const { path, url } = yield* origin.make("bad/many", files)
      const { delivery, runId } = yield* lived(
        url,
        // Only in the index: to write 50,000 files takes many times longer than all the rest.
        String.raw`blob=$(echo | git hash-object -w --stdin)
        seq 50000 | sed "s,.*,100644 $blob\tmany/&," | git update-index --index-info; git commit -qm many`
      )
      const { reason } = failed(delivery)
      assert.strictEqual(reason._tag, "PolicyRefused", reason.message)
      assert.include(reason.message, "paths")
      assert.isUndefined(yield* GitOrigin.branchAt(path, `sandbox/${runId}`))
      yield* (yield* GitRelay).discard(runId)
    })
  )
})
