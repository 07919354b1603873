/**
 * The limits of an MCP server.
 */

/** Concurrent calls; others wait. */
export const callsMax = 16

/** Longest message: it has room for the largest file that can be written, as JSON. */
export const lineBytesMax = 64 * 1024 * 1024

/** Messages in one HTTP request. */
export const batchMax = 8
