/**
 * The state of a session, and its serialized form, which is never trusted.
 *
 * The form has no secret: no key, and of environment variables only the names. It has no path of the host.
 */
import {
  isEnvValueReference,
  isSerializedEnvValueReference,
  type Manifest,
  SandboxConfigurationError,
  type SandboxSessionState,
  type Snapshot
} from "@openai/agents-core/sandbox"
import { deserializeManifest, serializeManifestRecord } from "@openai/agents-core/sandbox/internal"
import { Result, Schema } from "effect"
import * as ManifestFiles from "./ManifestFiles.ts"
import * as Snapshots from "./Snapshots.ts"

/** State of a session. Everything else about a sandbox is known only to the client that has made it. */
export interface SessionState extends SandboxSessionState {
  /** Random, so that the sandbox can be named only with its state. */
  readonly sessionId: string
  /** Variables of commands. Their values are not serialized. */
  environment: Record<string, string>
  /** Variables that a session must have to be resumed. */
  readonly environmentNames?: ReadonlyArray<string>
  snapshot: Snapshot | null
  /** Digest of the snapshot. */
  snapshotFingerprint: string | null
}

const Uuid = Schema.String.check(Schema.isPattern(/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/u))

const Serialized = Schema.Struct({
  sessionId: Uuid,
  environmentNames: Schema.Array(Schema.String.check(Schema.isMaxLength(1024))).check(
    Schema.isMaxLength(1024)
  ),
  snapshot: Schema.NullOr(
    Schema.Struct({
      type: Schema.Literals(["local", "remote"]),
      id: Schema.NonEmptyString.check(Schema.isMaxLength(1024))
    })
  ),
  snapshotFingerprint: Schema.NullOr(Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/u))),
  snapshotFingerprintVersion: Schema.NullOr(Schema.Literal(Snapshots.digestVersion))
})

type Serialized = typeof Serialized.Type

const decode = Schema.decodeUnknownResult(Serialized)

/** The serialized form, as the SDK stores it in its own envelope. It is JSON. */
export const serialize = (state: SessionState): Record<string, unknown> => ({
  sessionId: state.sessionId,
  environmentNames: namesOf(state),
  manifest: { ...serializeManifestRecord(state.manifest), environment: {} },
  snapshot: state.snapshot,
  snapshotFingerprint: state.snapshotFingerprint,
  snapshotFingerprintVersion: state.snapshotFingerprint === null ? null : Snapshots.digestVersion
})

/** Checks a serialized form, without a side effect. */
export const parse = (
  given: Record<string, unknown>
): { readonly manifest: Manifest; readonly fields: Serialized } => {
  const fields = check(given)
  const manifest = manifestOf(given["manifest"])
  ManifestFiles.check(manifest)
  return { manifest, fields }
}

/** Checks the fields that do not come from the SDK. A state in memory may have been made of anything. */
export const check = (given: Record<string, unknown>): Serialized => {
  const decoded = decode({
    sessionId: given["sessionId"],
    environmentNames: given["environmentNames"] ?? [],
    snapshot: given["snapshot"] ?? null,
    snapshotFingerprint: given["snapshotFingerprint"] ?? null,
    snapshotFingerprintVersion: given["snapshotFingerprintVersion"] ?? null
  })
  if (Result.isFailure(decoded)) throw invalid("it does not have the form that this client serializes")
  const { snapshot, snapshotFingerprint, snapshotFingerprintVersion } = decoded.success
  const isStored = snapshot !== null
  if (isStored !== (snapshotFingerprint !== null) || isStored !== (snapshotFingerprintVersion !== null)) {
    throw invalid("its snapshot and its digest do not belong together")
  }
  return decoded.success
}

/** Makes a state of a serialized form. Variables have the values of the given manifest, which the SDK makes current. */
export const deserialize = async (given: Record<string, unknown>): Promise<SessionState> => {
  const { fields, manifest } = parse(given)
  return { ...fields, manifest, environment: await manifest.resolveEnvironment(), workspaceReady: true }
}

/** The stored archive that a state names. */
export const storedOf = ({ snapshot, snapshotFingerprint }: SessionState): Snapshots.Stored | undefined =>
  snapshot === null || snapshotFingerprint === null ? undefined : { snapshot, digest: snapshotFingerprint }

/** Throws if a variable has no value, because its value was not serialized. */
export const requireEnvironment = ({ environment, environmentNames = [] }: SessionState): void => {
  const missing = environmentNames.filter((name) => !Object.hasOwn(environment, name))
  if (missing.length === 0) return
  throw new SandboxConfigurationError(
    `The state has no values of environment variables, because they may be secret. Resume it with a manifest that has ${missing.join(", ")}, or set state.environment.`,
    { missing }
  )
}

const namesOf = ({ environment }: SessionState): ReadonlyArray<string> => Object.keys(environment).toSorted()

const manifestOf = (record: unknown): Manifest => {
  if (typeof record !== "object" || record === null || Array.isArray(record))
    throw invalid("it has no manifest")
  const { environment } = record as { readonly environment?: unknown }
  // The SDK's runner puts in references of the current manifest. One from JSON could name any secret.
  if (
    Object.values(environment ?? {}).some(
      (one) => isSerializedEnvValueReference(one) && !isEnvValueReference(one)
    )
  ) {
    throw invalid("a variable of its manifest is a reference, which only the current manifest may have")
  }
  try {
    return deserializeManifest(record as Record<string, unknown>)
  } catch (cause) {
    throw Object.assign(invalid("its manifest is not valid"), { cause })
  }
}

const invalid = (what: string) =>
  new SandboxConfigurationError(
    `The sandbox state cannot be used: ${what}. Use a state that serializeSessionState() of this client has returned, or create a new session.`
  )
