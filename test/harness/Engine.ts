/**
 * The engine of all tests that start no private one. `DOCKER_HOST` names it, as for the `docker` command, and
 * `COGNI_ENGINE_RUNTIME` its OCI runtime.
 */
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"

const { COGNI_ENGINE_RUNTIME, DOCKER_HOST } = process.env

/** Both variables, as far as they are set, for programs that do not inherit this process's. */
export const variables: Readonly<Record<string, string>> = {
  ...(DOCKER_HOST === undefined ? {} : { DOCKER_HOST }),
  ...(COGNI_ENGINE_RUNTIME === undefined ? {} : { COGNI_ENGINE_RUNTIME })
}

/** For `DockerContainerRuntime.layerApi`. */
export const runtime = { engineRuntime: COGNI_ENGINE_RUNTIME || undefined }

/** For `DockerContainerRuntime.layer`. */
export const options = { host: DOCKER_HOST || undefined, ...runtime }

export const api = () => DockerApi.layer({ host: options.host })
