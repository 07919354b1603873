/**
 * What every `Workspace` must do: files the run may change, inputs it may only read, a user that is not root, and
 * nothing left of what was made for one run.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, type Layer, type Scope } from "effect"
import * as RunId from "../RunId.ts"
import {
  inputsTarget,
  type PlantedDirectory,
  target,
  Workspace,
  type WorkspaceRequest
} from "../Workspace.ts"

/** What a backend does in its own way. */
export interface Fixture<R> {
  /** An existing directory the caller may give to a run. */
  readonly directory: Effect.Effect<string, unknown, R | Scope.Scope>
  /** Where nothing is. */
  readonly missingDirectory: string
  /** Whether something is at a mount's source. */
  readonly exists?: ((source: string) => Effect.Effect<boolean, unknown, R>) | undefined
  /** What a file at a mount's source holds. */
  readonly read?: ((path: string) => Effect.Effect<string, unknown, R>) | undefined
  /** The permissions of a file at a mount's source. */
  readonly mode?: ((path: string) => Effect.Effect<number, unknown, R>) | undefined
}

/** For `Workspace.layerMemory`, given these directories. */
export const memoryDirectories: ReadonlySet<string> = new Set(["/contract/project"])

export const memoryFixture: Fixture<never> = {
  directory: Effect.succeed("/contract/project"),
  missingDirectory: "/contract/missing"
}

/** A workspace for a run of its own: a temporary one without plants, where nothing else is said. */
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

    it.effect("mounts what may be changed writable, and inputs read-only", () =>
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

    it.effect("shows inputs in the workspace too, unless that place is the agent's own", () =>
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

    it.effect("mounts what is planted where it was asked for, read-only, each from a place of its own", () =>
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
        "what is planted is there to be read by anybody, changed by nobody, and gone at the end",
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

    it.effect("the agent is never root, and has added nothing yet", () =>
      Effect.gen(function* () {
        const { countedBytes, countedBytesAtRest, user } = yield* acquire()
        assert.isAbove(user.userId, 0)
        assert.isAbove(user.groupId, 0)
        assert.deepInclude(yield* countedBytes, { bytes: 0 })
        assert.strictEqual(yield* countedBytesAtRest, 0)
      })
    )

    it.effect("two runs share no temporary directory", () =>
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

    it.effect("a temporary directory ends with its run, however that ends", () =>
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

    it.effect("a directory of the host's is used as it is, and stays", () =>
      Effect.gen(function* () {
        const path = yield* fixture.directory
        const { mounts } = yield* Effect.scoped(acquire({ source: { type: "directory", path } }))
        assert.strictEqual(mounts.find((mount) => mount.target === target)?.source, path)
        assert.notStrictEqual(yield* exists(path), false)
      })
    )

    it.effect("a directory that is not there is refused, by name", () =>
      Effect.gen(function* () {
        const path = fixture.missingDirectory
        const error = yield* Effect.flip(Effect.scoped(acquire({ source: { type: "directory", path } })))
        assert.strictEqual(error._tag, "WorkspaceFailed")
        assert.include(error.message, path)
        assert.isNotEmpty(error.remedy)
      })
    )
  })
