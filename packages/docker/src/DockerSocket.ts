/** Addresses of engines, in the syntax of `DOCKER_HOST`. Pure. */

/** The address of an engine. */
export type DockerAddress =
  | { readonly type: "unix"; readonly path: string }
  | { readonly type: "tcp"; readonly host: string; readonly port: number }

export const defaultPath = "/var/run/docker.sock"

/**
 * Parses `unix:///path`, `/path`, `tcp://host:port` or `http://host:port`. Returns `undefined` for any other text.
 */
export const parse = (host: string): DockerAddress | undefined => {
  const unix = /^(?:unix:\/\/)?(\/[^\0]*)$/u.exec(host)
  if (unix !== null) return { type: "unix", path: unix[1]! }
  const tcp = /^(?:tcp|http):\/\/(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):(\d{1,5})\/?$/u.exec(host)
  if (tcp !== null && Number(tcp[2]) <= 65_535) return { type: "tcp", host: tcp[1]!, port: Number(tcp[2]) }
  return undefined
}

/** Formats an address in the syntax of `DOCKER_HOST`. */
export const format = (address: DockerAddress): string =>
  address.type === "unix" ? `unix://${address.path}` : `tcp://${address.host}:${address.port}`
