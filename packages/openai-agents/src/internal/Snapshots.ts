/**
 * Stores of archives, by the snapshot conventions of the SDK: a directory of the host (`local`), or a store that the
 * application provides (`remote`).
 *
 * A serialized state names a snapshot by its ID, together with the digest of its content. Its place comes from the
 * options of the client. So a forged state leads to no other file, and to no archive whose content is unknown to its
 * author.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Unsupported } from "@cogni/sandbox-promise"
import {
  isNoopSnapshotSpec,
  type RemoteSnapshotStore,
  SandboxConfigurationError,
  SandboxSnapshotNotRestorableError,
  SandboxSnapshotRestoreError,
  type Snapshot,
  type SnapshotSpec
} from "@openai/agents-core/sandbox"
import { createHash } from "node:crypto"
import { isAbsolute, join } from "node:path"
import { unlink } from "node:fs/promises"
import * as HostReader from "./HostReader.ts"

export const digestVersion = "archive_sha256_v1"

/** A stored archive, as a state names it. */
export interface Stored {
  readonly snapshot: Snapshot
  /** SHA-256 of the archive, in hexadecimal digits. */
  readonly digest: string
}

export interface SnapshotStore {
  readonly save: (archive: Uint8Array) => Promise<Stored>
  /** Rejects if it does not exist, or has another digest. */
  readonly load: (stored: Stored) => Promise<Uint8Array>
  readonly remove: (stored: Stored) => Promise<void>
}

/** Returns undefined if nothing is to be stored. Throws for a spec that is not supported or not complete. */
export const of = (spec: SnapshotSpec | undefined, archiveBytesMax: number): SnapshotStore | undefined => {
  if (spec === undefined || isNoopSnapshotSpec(spec)) return undefined
  if (spec.type === "local") return local(spec["baseDir"], archiveBytesMax)
  if (spec.type === "remote") return remote(spec, archiveBytesMax)
  throw new Unsupported({
    operation: `snapshot of type ${JSON.stringify(String(spec.type).slice(0, 40))}`,
    reason: "use local with a baseDir, remote with a store, or noop"
  })
}

const local = (baseDir: unknown, archiveBytesMax: number): SnapshotStore => {
  if (typeof baseDir !== "string" || !isAbsolute(baseDir)) {
    throw new SandboxConfigurationError(
      "A local snapshot needs baseDir, the absolute path of a host directory that only this user can write."
    )
  }
  const pathOf = ({ snapshot }: Stored) => {
    if (!isLocalId(snapshot.id)) throw unknown(snapshot)
    return join(baseDir, `${snapshot.id}.tar`)
  }
  return {
    save: async (archive) => {
      const stored = { snapshot: { type: "local", id: crypto.randomUUID() }, digest: digestOf(archive) }
      await OwnFiles.makePrivateDirectory(baseDir)
      await OwnFiles.replace(pathOf(stored), archive)
      return stored
    },
    load: async (stored) =>
      verified(stored, await HostReader.readFile(pathOf(stored), archiveBytesMax).catch(notFound(stored))),
    remove: async (stored) => {
      await unlink(pathOf(stored)).catch(notFound(stored))
    }
  }
}

const remote = (spec: SnapshotSpec, archiveBytesMax: number): SnapshotStore => {
  const { id, metadata, store } = spec as SnapshotSpec & {
    readonly id?: string
    readonly metadata?: Record<string, unknown>
    readonly store?: RemoteSnapshotStore
  }
  if (typeof store?.save !== "function" || typeof store.load !== "function") {
    throw new SandboxConfigurationError(
      "A remote snapshot needs a store with the functions save and load. Give it in the options of the client."
    )
  }
  return {
    save: async (archive) => {
      const saved = await store.save({
        data: archive,
        ...(id === undefined ? {} : { id }),
        ...(metadata === undefined ? {} : { metadata })
      })
      return { snapshot: { type: "remote", id: saved.id }, digest: digestOf(archive) }
    },
    load: async (stored) => {
      const { data } = await store.load({ id: stored.snapshot.id })
      if (data.byteLength > archiveBytesMax) {
        throw new SandboxSnapshotRestoreError(
          `The snapshot has ${data.byteLength} bytes, and at most ${archiveBytesMax} are read. Raise archiveBytesMax.`
        )
      }
      return verified(stored, data)
    },
    remove: async ({ snapshot }) => {
      await store.delete?.({ id: snapshot.id })
    }
  }
}

const isLocalId = (id: string): boolean => /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/u.test(id)

const digestOf = (archive: Uint8Array): string => createHash("sha256").update(archive).digest("hex")

const verified = (stored: Stored, archive: Uint8Array): Uint8Array => {
  if (digestOf(archive) === stored.digest) return archive
  throw new SandboxSnapshotRestoreError(
    "The snapshot is not the one that this state was serialized with, so it is not restored. Create a new session.",
    { snapshotId: stored.snapshot.id }
  )
}

const notFound =
  ({ snapshot }: Stored) =>
  (cause: unknown): never => {
    throw Object.assign(unknown(snapshot), { cause })
  }

const unknown = ({ id }: Snapshot) =>
  new SandboxSnapshotNotRestorableError(
    "The snapshot of this state cannot be read. Give the client the baseDir with which the state was serialized, or create a new session.",
    { snapshotId: id }
  )
