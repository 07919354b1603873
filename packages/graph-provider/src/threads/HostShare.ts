/**
 * Decides whether a host has room for one more turn of an account. Pure.
 *
 * The limit of a host is for all accounts, and no account loses files because of another. So a full host still lets
 * accounts below their share work, and no account reserves more than a quarter of the limit beside others.
 */
import { ThreadHostFull } from "./ThreadError.ts"

/** Size of files that are not measured, such as those of a running turn: the default disk limit of a run. */
export const unmeasuredBytes = 2 * 1024 ** 3

/** Part of the limit that the files of one account may reserve before they are measured, if others have files. */
const reservedPart = 1 / 4

/** From this multiple of the limit on, turns of all accounts are refused. */
const overfullPart = 2

/** Files of one account, or of none: no thread that is known has them. */
export interface Use {
  readonly billingAccountId?: string
  readonly bytes: number
  /** Number of sets of files whose size is not known. */
  readonly unmeasured: number
}

/** Returns the bytes of some files. Those that are not measured may be a full disk. */
export const bytesOf = (uses: ReadonlyArray<Pick<Use, "bytes" | "unmeasured">>): number =>
  uses.reduce((sum, { bytes, unmeasured }) => sum + bytes + unmeasured * unmeasuredBytes, 0)

/** Returns why an account cannot have one more turn beside the files that are on the host, or `undefined`. */
export const refusalOf = (
  uses: ReadonlyArray<Use>,
  {
    billingAccountId,
    bytesPerHostMax
  }: { readonly billingAccountId: string; readonly bytesPerHostMax: number }
): ThreadHostFull | undefined => {
  const all = bytesOf(uses)
  if (all >= bytesPerHostMax * overfullPart)
    return new ThreadHostFull({ limit: "host", bytesMax: bytesPerHostMax * overfullPart })
  const own = uses.filter((use) => use.billingAccountId === billingAccountId)
  const accounts = new Set(
    [billingAccountId, ...uses.map((use) => use.billingAccountId)].filter((account) => account !== undefined)
  ).size
  const share = Math.floor(bytesPerHostMax / accounts)
  if (all >= bytesPerHostMax && bytesOf(own) >= share)
    return new ThreadHostFull({ limit: "share", bytesMax: share })
  const reserved = own.reduce((sum, { unmeasured }) => sum + unmeasured, 0)
  const reservedMax = Math.floor(bytesPerHostMax * reservedPart)
  // One turn may always run.
  if (accounts > 1 && reserved > 0 && (reserved + 1) * unmeasuredBytes > reservedMax)
    return new ThreadHostFull({ limit: "running", bytesMax: reservedMax })
  return undefined
}
