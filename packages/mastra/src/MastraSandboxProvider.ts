/**
 * Registers sealed sandboxes with Mastra's editor, whose users choose and configure them in stored workspaces.
 *
 * The application says what a sandbox may be. A stored configuration can only lower its limits: it names no image, no
 * directory of the host, no model and no packages.
 */
import { Limits } from "@cogni/sandbox-core/SpecFields"
import type { SandboxHost, SandboxOptions } from "@cogni/sandbox-promise"
import type { SandboxProvider } from "@mastra/core/editor"
import { SandboxError as MastraError } from "@mastra/core/workspace"
import { Schema } from "effect"
import * as CommandLimits from "./internal/CommandLimits.ts"
import { type CogniSandboxOptions, mastraSandbox } from "./MastraSandbox.ts"

/** A stored configuration. */
export interface CogniSandboxConfig {
  /** Variables for all commands, in addition to those of the application. */
  readonly env?: Readonly<Record<string, string>>
  /** Default directory of commands. */
  readonly workingDirectory?: string
  /** Time limit of one command, in seconds, if it is lower than the application's. */
  readonly timeoutSecondsMax?: number
  /** Limits of the sandbox. Those that are not lower than the application's change nothing. */
  readonly limits?: Partial<Limits>
}

export interface CogniSandboxProviderOptions extends Omit<CogniSandboxOptions, "id"> {
  /** Opens the sandboxes. */
  readonly host: Pick<SandboxHost, "createSandbox">
  /** Spec of each sandbox. */
  readonly spec?: Omit<SandboxOptions, "runId" | "signal"> | undefined
}

const limitNames = Object.keys(Limits.fields) as ReadonlyArray<keyof Limits>

const Config = Schema.Struct({
  env: Schema.optionalKey(Schema.Record(Schema.String, Schema.String)),
  workingDirectory: Schema.optionalKey(Schema.String),
  timeoutSecondsMax: Schema.optionalKey(Schema.Finite.check(Schema.isGreaterThan(0))),
  limits: Schema.optionalKey(
    Schema.Struct(
      Object.fromEntries(limitNames.map((name) => [name, Schema.optionalKey(Schema.Finite)])) as Record<
        keyof Limits,
        Schema.optionalKey<typeof Schema.Finite>
      >
    )
  )
})

const decode = Schema.decodeUnknownSync(Config, { errors: "all", onExcessProperty: "error" })

/** A provider for `MastraEditor`: `sandboxes: { [provider.id]: provider }`. */
export const mastraSandboxProvider = ({
  host,
  spec = {},
  ...options
}: CogniSandboxProviderOptions): SandboxProvider<CogniSandboxConfig> => ({
  id: "cogni-sandbox",
  name: "Cogni Sandbox",
  description: "Sealed containers without a network, for untrusted agents.",
  configSchema: Schema.toJsonSchemaDocument(Config, { onExcessProperty: "error" }).schema,
  createSandbox: (config) => {
    const { env, limits, timeoutSecondsMax, workingDirectory } = decoded(config)
    const own = Schema.decodeSync(Limits)(spec.limits ?? {})
    return mastraSandbox(
      ({ signal }) => host.createSandbox({ ...spec, limits: lower(own, limits), ...(signal && { signal }) }),
      {
        ...options,
        env: { ...options.env, ...env },
        ...(workingDirectory === undefined ? {} : { workingDirectory }),
        timeoutSecondsMax: Math.min(
          CommandLimits.of(options).timeoutSecondsMax,
          timeoutSecondsMax ?? Number.POSITIVE_INFINITY
        )
      }
    )
  }
})

const decoded = (config: unknown): typeof Config.Type => {
  try {
    return decode(config ?? {})
  } catch (error) {
    throw new MastraError(
      `the stored configuration of the sandbox is invalid: ${error instanceof Error ? error.message : String(error)}`,
      "INVALID_CONFIG"
    )
  }
}

const lower = (own: Limits, asked: Partial<Limits> = {}): Limits => ({
  ...own,
  ...Object.fromEntries(
    Object.entries(asked).map(([name, value]) => [name, Math.min(own[name as keyof Limits], value)])
  )
})
