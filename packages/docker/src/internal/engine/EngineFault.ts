/**
 * Maps errors of the engine and of the connection to it to typed errors. Pure, and the only module that parses an
 * engine's messages: the API has status codes but no error codes, so the message decides between errors of one status.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { ContainerFailed, ImageNotFound, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"

/** The fields that this module reads of an error that `EngineHttp` or Node throws. */
export interface EngineFault {
  readonly code?: string | undefined
  readonly statusCode?: number | undefined
  readonly message: string
}

/** A known error of the connection. It is permanent if only a change of the host helps. */
interface Unreachable {
  readonly detail: (at: string) => string
  readonly remedy: string
  readonly isPermanent?: true
}

const closed: Unreachable = {
  detail: (at: string) => `refuses this user: permission denied for ${at}`,
  remedy: "Add the user to the docker group (usermod -aG docker USER) and log in again, or run as root",
  isPermanent: true
}

const unreachable: Record<string, Unreachable> = {
  ENOENT: {
    detail: (at) => `is not running: there is no socket at ${at}`,
    remedy: `Start it (systemctl start docker), or set ${named("DockerApi.host")}`
  },
  ECONNREFUSED: {
    // A unix socket is a file, which a killed engine leaves behind; a port is not.
    detail: (at) =>
      `is not running: no process listens at ${at}${at.startsWith("tcp:") ? "" : ", left over from a killed engine"}`,
    remedy: "Start it again (systemctl restart docker)"
  },
  EACCES: closed,
  EPERM: closed
}

/** Reads an {@link EngineFault} from any thrown value. */
export const faultOf = (thrown: unknown): EngineFault => {
  if (typeof thrown !== "object" || thrown === null) return { message: String(thrown) }
  const { code, message, statusCode } = thrown as Record<string, unknown>
  return {
    message: String(message ?? "no message")
      .trim()
      .replaceAll(/\s+/gu, " ")
      .slice(0, 600),
    ...(typeof code === "string" ? { code } : {}),
    ...(typeof statusCode === "number" ? { statusCode } : {})
  }
}

export const isNotFound = (fault: EngineFault): boolean => fault.statusCode === 404

/** Returns whether a removal was refused because the container is already being removed. */
export const isRemovalUnderWay = (fault: EngineFault): boolean =>
  fault.statusCode === 409 && /removal of container .* is already in progress/iu.test(fault.message)

export const classify = (
  operation: string,
  thrown: unknown,
  about: { readonly image?: string; readonly address?: string } = {}
): ContainerError => {
  const fault = faultOf(thrown)
  const failed = (remedy: string) => new ContainerFailed({ operation, detail: fault.message, remedy })
  if (fault.statusCode === undefined) {
    const known = fault.code === undefined ? undefined : unreachable[fault.code]
    if (known !== undefined) {
      const detail = known.detail(about.address ?? "its address")
      return new RuntimeUnavailable({
        detail,
        remedy: known.remedy,
        isAbsent: true,
        ...(known.isPermanent === true ? { isPermanent: true } : {})
      })
    }
    // Our timeout. A connection that the engine closes also reports "aborted", but with a different code.
    if (fault.code === "ABORT_ERR" || (fault.code === undefined && /abort/iu.test(fault.message))) {
      return new RuntimeUnavailable({
        detail: `did not answer "${operation}" in time`,
        remedy: `It is overloaded or hangs: read its log (${named("DockerDoctor")})`
      })
    }
    return new RuntimeUnavailable({
      detail: `went away in the middle of a call (${fault.code ?? fault.message})`,
      remedy: "It was stopped or has crashed: read its log, then start it and try again"
    })
  }
  if (fault.statusCode === 404 && about.image !== undefined && /no such image/iu.test(fault.message)) {
    return new ImageNotFound({ image: about.image })
  }
  if (fault.statusCode === 409 && /name .* already in use/iu.test(fault.message)) {
    return failed(
      `Another run has this id: omit the id, or remove orphaned resources (${named("DockerReaper")})`
    )
  }
  // Matches the program that could not be executed: a missing mount or control group is also "no such file".
  if (/exec: "[^"]*": .*(not found|no such file)/iu.test(fault.message) && operation === "start") {
    return failed(
      "The image has no cogni entrypoint: build it FROM the runtime image (README of @cogni/sandbox-images)"
    )
  }
  if (/no space left on device/iu.test(fault.message))
    return failed(`Free disk space (${named("DockerReaper")}, docker system df)`)
  if (/memory limit|minimum memory/iu.test(fault.message)) return failed("Raise limits.memoryBytesMax")
  if (/unknown (?:or invalid )?runtime/iu.test(fault.message))
    return failed(
      `Correct ${named("DockerContainerRuntime.engineRuntime")}, or add this runtime to the engine's daemon.json and restart the engine`
    )
  if (fault.statusCode >= 500) return failed(`Read the engine's log (${named("DockerDoctor")})`)
  return failed(
    `The engine refused it: check the spec, the image and the engine's version (${named("DockerDoctor")})`
  )
}

/** Error for a response that does not match its schema. It is the same after a retry. */
export const unreadable = (operation: string, problem: string): RuntimeUnavailable =>
  new RuntimeUnavailable({
    detail: `answered "${operation}" in an unknown format: ${problem.replaceAll(/\s+/gu, " ").slice(0, 600)}`,
    remedy: `Check the engine's version (${named("DockerDoctor")})`,
    isPermanent: true
  })
