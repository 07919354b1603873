/** Names of the task queues. Imports nothing, because the workflow uses it. */

/** The queue of placements, which a host asks only while it has room. */
export const placementQueue = (taskQueue: string): string => `${taskQueue}-place`

/** The queue of one host. */
export const hostQueue = (taskQueue: string, host: string): string => `${taskQueue}-host-${host}`
