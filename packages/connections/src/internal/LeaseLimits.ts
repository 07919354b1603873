/** Time limits of leases and of the sources of their credentials. */

/** Time limit of a source, in seconds. */
export const sourceSecondsMax = 30

/** Seconds between two checks of an open lease. */
export const watchSeconds = 5

/** Longest time for which an open lease may not be verified, in seconds. */
export const unverifiedSecondsMax = 60
