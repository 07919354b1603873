/** The place of the socket that leads out of a sandbox. */

/** Where the directory of a socket is mounted. */
export const socketTarget = "/llm-sock"
