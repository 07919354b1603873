/**
 * The contract of every `Workspace`: files that the run may change, inputs that it may only read, a user that is not
 * root, and nothing left behind of a run.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, type Layer, type Scope } from "effect"
import * as RunId from "../RunId.ts"
import { sourceAt } from "../WaitingSandbox.ts"
import { type PlantedDirectory, Workspace, type WorkspaceRequest } from "../Workspace.ts"
import { inputsTarget, target } from "../SandboxPlace.ts"
import { socketTarget } from "../internal/SocketPlace.ts"

/** Parts of the contract that depend on the backend. */
interface Fixture<R> {
  /** An existing directory the caller may give to a run. */
  readonly directory: Effect.Effect<string, unknown, R | Scope.Scope>
  /** A path where nothing exists. */
  readonly missingDirectory: string
  /** Checks whether a mount's source exists. */
  readonly exists?: ((source: string) => Effect.Effect<boolean, unknown, R>) | undefined
  /** Content of a file at a mount's source. */
  readonly read?: ((path: string) => Effect.Effect<string, unknown, R>) | undefined
  /** The permissions of a file at a mount's source. */
  readonly mode?: ((path: string) => Effect.Effect<number, unknown, R>) | undefined
}

/** Directories for `Workspace.layerMemory`. */
export const memoryDirectories: ReadonlySet<string> = new Set(["/contract/project"])

export const memoryFixture: Fixture<never> = {
  directory: Effect.succeed("/contract/project"),
  missingDirectory: "/contract/missing"
}

/** Acquires a workspace for a new run: by default a temporary one without planted directories. */
const acquire = (asked: Partial<WorkspaceRequest> = {}) =>
  Effect.flatMap(Effect.all([RunId.generate, Workspace]), ([runId, workspaces]) =>
    workspaces.acquire({
      runId,
      source: { type: "temporary" },
      inputs: [{ name: "prompt.txt", content: "hello ☃\n" }],
      planted: [],
      memory: false,
      workspaceBytesMax: 1024 * 1024,
      ...asked
    })
  )

/** Two directories, one of them empty. */
const planted: ReadonlyArray<PlantedDirectory> = [
  {
    target: "/home/agent/.contract",
    name: "contract",
    files: [
      { name: "credentials", content: "planted ☃\n" },
      { name: "config", content: "" }
    ]
  },
  { target: "/opt/contract", name: "contract-empty", files: [] }
]

export const suite = <R, E>(
  name: string,
  layer: Layer.Layer<Workspace | R, E>,
  fixture: Fixture<NoInfer<R>>
): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`Workspace (${name})`, (it) => {
    const exists = fixture.exists ?? (() => Effect.succeed(undefined))

    it.effect("mounts the workspace writable, and inputs read-only", () =>
      Effect.gen(function* () {
        const { mounts } = yield* acquire()
        const writable = mounts.filter((mount) => !mount.readOnly).map((mount) => mount.target)
        assert.deepStrictEqual(writable, [target])
        const inputs = mounts.find((mount) => mount.target === inputsTarget)
        assert.isTrue(inputs?.readOnly)
        if (inputs !== undefined && fixture.read !== undefined) {
          assert.strictEqual(yield* fixture.read(`${inputs.source}/prompt.txt`), "hello ☃\n")
        }
      })
    )

    it.effect("mounts inputs in the workspace too, unless `.cogni` belongs to the agent", () =>
      Effect.gen(function* () {
        for (const memory of [false, true]) {
          const { mounts } = yield* acquire({ memory })
          assert.deepStrictEqual(
            mounts.filter(({ target: at }) => at.startsWith(`${target}/`)).map(({ target: at }) => at),
            memory ? [] : [`${target}/.cogni`]
          )
          assert.include(
            mounts.map(({ target: at }) => at),
            inputsTarget
          )
        }
      })
    )

    it.effect("mounts each planted directory at its target, read-only, from a separate source", () =>
      Effect.gen(function* () {
        const { mounts } = yield* acquire({ planted })
        const ours = planted.map(({ target }) => mounts.find((mount) => mount.target === target))
        assert.deepStrictEqual(
          ours.map((mount) => mount?.readOnly),
          [true, true]
        )
        const sources = new Set(ours.map((mount) => mount?.source))
        assert.strictEqual(sources.size, 2)
        const others = mounts.filter((mount) => !ours.includes(mount))
        assert.isFalse(
          others.some(({ source }) => sources.has(source)),
          "no other mount shows it"
        )
        assert.deepStrictEqual(
          others.filter(({ readOnly }) => !readOnly).map((mount) => mount.target),
          [target]
        )
      })
    )

    const { mode, read } = fixture
    if (read !== undefined && mode !== undefined) {
      it.effect(
        "makes planted files readable by all users, writable only by their owner, and removes them at the end",
        () =>
          Effect.gen(function* () {
            const source = yield* Effect.scoped(
              Effect.gen(function* () {
                const { mounts } = yield* acquire({ planted })
                const source = mounts.find((mount) => mount.target === planted[0]?.target)?.source ?? "none"
                for (const { content, name } of planted[0]?.files ?? []) {
                  assert.strictEqual(yield* read(`${source}/${name}`), content)
                  assert.strictEqual((yield* mode(`${source}/${name}`)) & 0o777, 0o644)
                }
                assert.strictEqual((yield* mode(source)) & 0o777, 0o755)
                return source
              })
            )
            assert.isFalse(yield* exists(source))
          })
      )
    }

    it.effect("never runs the agent as root, and counts no bytes at first", () =>
      Effect.gen(function* () {
        const { countedBytes, countedBytesAtRest, user } = yield* acquire()
        assert.isAbove(user.userId, 0)
        assert.isAbove(user.groupId, 0)
        assert.deepInclude(yield* countedBytes, { bytes: 0 })
        assert.strictEqual(yield* countedBytesAtRest, 0)
      })
    )

    it.effect("gives each run a separate temporary directory", () =>
      Effect.gen(function* () {
        const one = yield* acquire()
        const other = yield* acquire()
        const sources = new Set(one.mounts.map((mount) => mount.source))
        assert.deepStrictEqual(
          other.mounts.filter((mount) => sources.has(mount.source)),
          []
        )
      })
    )

    it.effect("removes a temporary directory with its run, however that ends", () =>
      Effect.gen(function* () {
        const { mounts } = yield* Effect.scoped(acquire())
        for (const { source } of mounts) assert.notStrictEqual(yield* exists(source), true)
        const fiber = yield* acquire().pipe(
          Effect.andThen(Effect.never),
          Effect.scoped,
          Effect.forkChild({ startImmediately: true })
        )
        yield* Effect.sleep("20 millis")
        yield* Fiber.interrupt(fiber)
      })
    )

    it.effect("prepares empty directories for a run, which gets them with its inputs", () =>
      Effect.gen(function* () {
        const { prepare } = yield* Workspace
        if (prepare === undefined) return
        for (const memory of [false, true]) {
          const sources = yield* Effect.scoped(
            Effect.gen(function* () {
              const prepared = yield* prepare({ memory })
              const other = yield* prepare({ memory })
              assert.deepStrictEqual(
                prepared.mounts.map(({ readOnly, target: at }) => [at, readOnly]),
                [
                  [target, false],
                  [inputsTarget, true],
                  ...(memory ? [] : [[`${target}/.cogni`, true]]),
                  [socketTarget, true]
                ]
              )
              const sources = prepared.mounts.map(({ source }) => source)
              assert.isFalse(other.mounts.some(({ source }) => sources.includes(source)))
              const acquired = yield* Effect.scoped(acquire({ memory, prepared }))
              assert.deepStrictEqual(acquired.mounts, prepared.mounts)
              assert.deepStrictEqual(acquired.user, prepared.user)
              assert.isAbove(prepared.user.userId, 0)
              const inputs = sourceAt(prepared, inputsTarget)
              if (fixture.read !== undefined)
                assert.strictEqual(yield* fixture.read(`${inputs}/prompt.txt`), "hello ☃\n")
              for (const source of sources) assert.notStrictEqual(yield* exists(source), false)
              return sources
            })
          )
          for (const source of sources) assert.notStrictEqual(yield* exists(source), true)
        }
      })
    )

    it.effect("uses a host directory as it is, and keeps it", () =>
      Effect.gen(function* () {
        const path = yield* fixture.directory
        const { mounts } = yield* Effect.scoped(acquire({ source: { type: "directory", path } }))
        assert.strictEqual(mounts.find((mount) => mount.target === target)?.source, path)
        assert.notStrictEqual(yield* exists(path), false)
      })
    )

    it.effect("refuses a directory that does not exist, by name", () =>
      Effect.gen(function* () {
        const path = fixture.missingDirectory
        const error = yield* Effect.flip(Effect.scoped(acquire({ source: { type: "directory", path } })))
        assert.strictEqual(error._tag, "WorkspaceFailed")
        assert.include(error.message, path)
        assert.isNotEmpty(error.remedy)
      })
    )
  })
