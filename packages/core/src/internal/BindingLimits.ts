/** Limits on what a run may tell a waiting sandbox over its channel. More would take longer than a cold start. */

/** Most bytes of arguments and variables. */
export const bindingBytesMax = 64 * 1024

/** Most arguments and variables. */
export const bindingTextsMax = 512
