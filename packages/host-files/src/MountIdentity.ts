/**
 * Which directory a sandbox must see where one of this host is mounted: what `Mount.held` of a container asks for.
 *
 * The engine opens a mount's source by its path, later and in a process of its own. Only a look from inside says which
 * directory that led to.
 */
import type { FileIdentity, HeldIdentity } from "@cogni/sandbox-core/Posture"
import { lstat } from "node:fs/promises"
import * as HostPath from "./HostPath.ts"
import * as KernelFile from "./KernelFile.ts"

/** An identity as it is written down, in decimal. */
export const written = ({ device, inode }: HostPath.Identity): FileIdentity => ({
  device: String(device),
  inode: String(inode)
})

/** A directory that is held open, or that nobody else can exchange (`isPrivate`). */
export const make = (
  identity: HostPath.Identity,
  { isPrivate }: { readonly isPrivate: boolean }
): HeldIdentity => ({ ...written(identity), bootId: KernelFile.bootId(), isPrivate })

/** A directory that this process has made below one that only it and its user can enter. */
export const ofPrivate = async (path: string): Promise<HeldIdentity> =>
  make(HostPath.identityOf(await lstat(path, { bigint: true })), { isPrivate: true })
