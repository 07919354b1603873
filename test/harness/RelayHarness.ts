/**
 * A relay over real git and real Docker, in a directory that is removed after the tests, and an agent that works in a
 * clone: a shell in a container.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import type { Clone } from "@cogni/sandbox-git-relay/RelaySteps"
import * as HostGitRelay from "@cogni/sandbox-git-relay/HostGitRelay"
import * as PullRequests from "@cogni/sandbox-git-relay/forge/PullRequests"
import { Effect, Layer } from "effect"
import { join } from "node:path"
import { docker } from "./Docker.ts"
import * as Engine from "./Engine.ts"
import * as Images from "./Images.ts"
import * as LeakCheck from "./LeakCheck.ts"
import * as RunHarness from "./RunHarness.ts"

/** A relay, with a cache of mirrors by default. */
export const layer = (
  options: Partial<HostGitRelay.HostGitRelayOptions> = {},
  credentials: Layer.Layer<GitCredentials.GitCredentials> = GitCredentials.layerNone,
  pullRequests: Layer.Layer<PullRequests.PullRequests> = PullRequests.layerNoop
) =>
  Layer.unwrap(
    Effect.map(RunHarness.Directory, (directory) =>
      HostGitRelay.layer({
        directory: join(directory, "relays"),
        cache: { directory: join(directory, "mirrors") },
        image: Images.runtime,
        owners: HostOwner,
        privateServers: "any",
        ...options
      })
    )
  ).pipe(
    Layer.provideMerge(
      Layer.mergeAll(DockerContainerRuntime.layerApi(Engine.runtime), credentials, pullRequests)
    ),
    Layer.provideMerge(
      Layer.unwrap(Effect.map(RunHarness.Directory, (stateDirectory) => LeakCheck.layer({ stateDirectory })))
    ),
    Layer.provideMerge(Layer.merge(Engine.api(), RunHarness.Directory.layer))
  )

/** Runs a shell script in a clone, as the agent's user and without a network. Returns its output. */
export const work = ({ workspacePath }: Clone, script: string): Effect.Effect<string> =>
  docker(
    ..."run --rm --network none --user 1000:1000 --init --workdir /workspace/repo --env HOME=/tmp".split(" "),
    "--volume",
    `${workspacePath}:/workspace`,
    "--entrypoint",
    "/bin/bash",
    Images.runtime,
    "-euc",
    script
  )

/** Generates a run ID that no other test has. */
export const runId = RunId.generate
