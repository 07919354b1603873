/**
 * Identities of the host directories that a sandbox must see at its mounts, for `Mount.held` of a container.
 *
 * The engine opens a mount's source by its path, later and in another process. Only a check from inside the sandbox
 * shows to which directory that led.
 */
import type { FileIdentity, HeldIdentity } from "@cogni/sandbox-core/Posture"
import { lstat } from "node:fs/promises"
import * as HostPath from "./HostPath.ts"
import * as KernelFile from "./KernelFile.ts"

/** Formats an identity in decimal. */
export const written = ({ device, inode }: HostPath.Identity): FileIdentity => ({
  device: String(device),
  inode: String(inode)
})

/** Identity of a directory that is held open, or that only this process can replace (`isPrivate`). */
export const make = (
  identity: HostPath.Identity,
  { isPrivate }: { readonly isPrivate: boolean }
): HeldIdentity => ({ ...written(identity), bootId: KernelFile.bootId(), isPrivate })

/** Identity of a directory that this process has made below one that only its user can enter. */
export const ofPrivate = async (path: string): Promise<HeldIdentity> =>
  make(HostPath.identityOf(await lstat(path, { bigint: true })), { isPrivate: true })
