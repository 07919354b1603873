/** Container specs for the tests of this package: one written out, and one for every value the schemas allow. */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import { RunId } from "@cogni/sandbox-core/RunId"
import { Argument, EnvironmentName, Limits, Network } from "@cogni/sandbox-core/SpecFields"
import { Schema } from "effect"

const mounts: ReadonlyArray<Mount> = [
  { type: "directory", source: "/srv/run/workspace", target: "/workspace", readOnly: false },
  { type: "volume", source: "cogni-run-000000000000-socket", target: "/llm-sock", readOnly: true }
]

export const written: ContainerSpec = {
  runId: RunId.make("run-000000000000"),
  role: "agent",
  image: "cogni-sandbox/runtime:test",
  argv: ["true"],
  env: {},
  user: { userId: 1000, groupId: 1000 },
  mounts,
  network: { mode: "none" },
  limits: {
    memoryBytesMax: 536_870_912,
    processesMax: 128,
    cpusMax: 1.5,
    temporaryBytesMax: 67_108_864,
    filesOpenMax: 1024,
    workspaceBytesMax: 1_073_741_824,
    runtimeSecondsMax: 60
  }
}

/** Schema of everything that a caller may request. */
export const Any = Schema.Struct({
  role: Schema.Literals(["agent", "proxy"]),
  argv: Schema.NonEmptyArray(Argument),
  env: Schema.Record(EnvironmentName, Argument),
  userId: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 65_535 })),
  network: Network,
  limits: Limits,
  readOnly: Schema.Boolean
})

export const fromAny = ({ readOnly, userId, ...rest }: typeof Any.Type): ContainerSpec => ({
  ...written,
  ...rest,
  user: { userId, groupId: userId },
  mounts: mounts.map((mount) => ({ ...mount, readOnly }))
})
