/** The containers that open an agent's repository, written out: every change of them shows here. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as WorkspaceContainer from "../src/internal/steps/WorkspaceContainer.ts"
import { branchOf, CommitId } from "@cogni/sandbox-git-relay/Refs"
import { Schema } from "effect"

const baseCommit = CommitId.make("a".repeat(40))
const request: WorkspaceContainer.WorkspaceRequest = {
  runId: RunId.make("run-000000000001"),
  image: "cogni/runtime:1",
  user: { userId: 1000, groupId: 1000 },
  workspacePath: "/relays/run-000000000001/workspace",
  runtimeSecondsMax: 120
}
const common = {
  runId: "run-000000000001",
  role: "relay",
  image: "cogni/runtime:1",
  user: { userId: 1000, groupId: 1000 },
  network: { mode: "none" },
  limits: {
    memoryBytesMax: 1_073_741_824,
    processesMax: 64,
    cpusMax: 2,
    temporaryBytesMax: 67_108_864,
    filesOpenMax: 1024,
    workspaceBytesMax: 268_435_456,
    runtimeSecondsMax: 120
  }
}
const environment = {
  GIT_ATTR_NOSYSTEM: "1",
  GIT_CONFIG_COUNT: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_KEY_0: "safe.directory",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_VALUE_0: "*",
  GIT_NO_LAZY_FETCH: "1",
  GIT_NO_REPLACE_OBJECTS: "1",
  GIT_TERMINAL_PROMPT: "0",
  HOME: "/nonexistent",
  LC_ALL: "C",
  PATH: "/usr/local/bin:/usr/bin:/bin"
}
const quiet = [
  "core.fsmonitor=false",
  "core.hooksPath=/dev/null",
  "core.commitGraph=false",
  "core.pager=cat",
  "pack.threads=1",
  "core.bigFileThreshold=256k"
].flatMap((value) => ["-c", value])
const workspace = (readOnly: boolean) => ({
  type: "directory",
  source: "/relays/run-000000000001/workspace",
  target: "/workspace",
  readOnly
})

describe("WorkspaceContainer", () => {
  it("exports in exactly this container", () => {
    const what = { ref: "refs/heads/sandbox/run-000000000001", baseCommit, objectFormat: "sha1" } as const
    assert.deepStrictEqual(WorkspaceContainer.bundleSpec(request, what) as object, {
      ...common,
      env: { ...environment, GIT_OPTIONAL_LOCKS: "0" },
      mounts: [workspace(true)],
      argv: [
        "/usr/local/bin/cogni-git",
        ..."export /workspace/repo/.git 2 refs/heads/sandbox/run-000000000001".split(" "),
        `^${baseCommit}`
      ]
    })
    const { argv } = WorkspaceContainer.bundleSpec(request, { ...what, objectFormat: "sha256" })
    assert.strictEqual(argv[3], "3")
  })

  it("commits uncommitted changes in exactly this container", () => {
    assert.deepStrictEqual(WorkspaceContainer.commitSpec(request, "-x; $(id)") as object, {
      ...common,
      env: environment,
      mounts: [workspace(false)],
      argv: [
        "/usr/local/bin/cogni-git",
        ..."check /workspace/repo -- /usr/local/bin/cogni-repo --commit".split(" "),
        "-x; $(id)"
      ]
    })
  })

  it("applies patches in exactly this container", () => {
    const patches = { path: "/relays/run-000000000001/patches", names: ["0001.patch", "0002.patch"] }
    assert.deepStrictEqual(WorkspaceContainer.applySpec(request, patches) as object, {
      ...common,
      env: environment,
      mounts: [
        workspace(false),
        {
          type: "directory",
          source: "/relays/run-000000000001/patches",
          target: "/patches",
          readOnly: true
        }
      ],
      argv: [
        "git",
        "-C",
        "/workspace/repo",
        ...quiet,
        ..."am --quiet --keep-non-patch --committer-date-is-author-date --no-gpg-sign --".split(" "),
        "/patches/0001.patch",
        "/patches/0002.patch"
      ]
    })
  })

  it.prop(
    "has no network, no other mount and no other environment, whatever the request",
    [Schema.String, Schema.String, Schema.String],
    ([image, workspacePath, message]) => {
      const asked = { ...request, image, workspacePath }
      const specs = [
        WorkspaceContainer.bundleSpec(asked, { ref: "HEAD", baseCommit, objectFormat: "sha1" }),
        WorkspaceContainer.commitSpec(asked, message),
        WorkspaceContainer.applySpec(asked, { path: "/patches-of-the-host", names: [] })
      ]
      for (const { env, mounts, network, role, user } of specs) {
        assert.deepStrictEqual(network, { mode: "none" })
        assert.strictEqual(role, "relay")
        assert.deepStrictEqual(user, asked.user)
        assert.deepStrictEqual(
          { ...env, GIT_OPTIONAL_LOCKS: "0" },
          { ...environment, GIT_OPTIONAL_LOCKS: "0" }
        )
        assert.isTrue(mounts.every(({ source }) => [workspacePath, "/patches-of-the-host"].includes(source)))
      }
      assert.isTrue(specs[0]!.mounts.every(({ readOnly }) => readOnly))
    }
  )

  it.prop("passes git no reference that could be read as an option", [RunId, CommitId], ([runId, commit]) => {
    for (const ref of [`refs/heads/${branchOf(runId)}`, "HEAD"]) {
      for (const objectFormat of ["sha1", "sha256"] as const) {
        const { argv } = WorkspaceContainer.bundleSpec(
          { ...request, runId },
          { ref, baseCommit: commit, objectFormat }
        )
        // The one reference that the host has named, and the base that the host already has.
        assert.deepStrictEqual(argv.slice(-2), [ref, `^${commit}`])
        assert.notMatch(ref, /^-|\s/u)
      }
    }
  })

  it.prop(
    "passes a commit message as one argument, and the names of patches as paths",
    [Schema.String],
    ([text]) => {
      assert.deepStrictEqual(WorkspaceContainer.commitSpec(request, text).argv.slice(-2), ["--commit", text])
      const { argv } = WorkspaceContainer.applySpec(request, { path: "/patches-of-the-host", names: [text] })
      assert.deepStrictEqual(argv.slice(-2), ["--", `/patches/${text}`])
    }
  )
})
