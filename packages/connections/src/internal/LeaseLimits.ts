/** Time limits of leases and of the sources of their credentials. */

/** Time limit of a source, in seconds. */
export const sourceSecondsMax = 30

/** Longest time after which a credential that comes too late is still made invalid, in seconds. */
export const lateSecondsMax = 60

/** Longest time for which a caller that leaves waits for such a credential, in seconds. */
export const leavingSecondsMax = 2

/** Seconds between two checks of an open lease. */
export const watchSeconds = 5

/** Longest time for which an open lease may not be verified, in seconds. */
export const unverifiedSecondsMax = 60
