import * as MemoryGitRelay from "@cogni/sandbox-git-relay/MemoryGitRelay"
import * as GitRelayContract from "@cogni/sandbox-git-relay/testing/GitRelayContract"
import { Effect, Layer } from "effect"

const stage = Layer.effect(
  GitRelayContract.Stage,
  Effect.map(MemoryGitRelay.MemoryGit, (git) =>
    GitRelayContract.Stage.of({ ...git, origin: (files) => git.origin(crypto.randomUUID(), files) })
  )
)

GitRelayContract.suite("memory", Layer.provideMerge(stage, MemoryGitRelay.layer()))
