/** The `GitRelay` contract on real git, real Docker and local repositories. */
import { CommitId } from "@cogni/sandbox-git-relay/Refs"
import * as GitRelayContract from "../../packages/git-relay/test/GitRelayContract.ts"
import { Effect, Layer } from "effect"
import { join } from "node:path"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as RelayHarness from "../harness/RelayHarness.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

/** Shell line that writes the files. */
const written = (files: Readonly<Record<string, string>>): string =>
  Object.entries(files)
    .map(
      ([path, text]) => `mkdir -p "$(dirname ${quoted(path)})"; printf %s ${quoted(text)} > ${quoted(path)}`
    )
    .join("; ")

const stage = Layer.effect(
  GitRelayContract.Stage,
  Effect.map(RunHarness.Directory, (directory) =>
    GitRelayContract.Stage.of({
      origin: (files) => {
        const path = join(directory, `${crypto.randomUUID()}.git`)
        return Effect.as(GitOrigin.seed(path, files), path)
      },
      commit: (clone, files, message) =>
        Effect.map(
          RelayHarness.work(
            clone,
            `${written(files)}; git add --all; git commit -qm ${quoted(message)}; git rev-parse HEAD`
          ),
          (id) => CommitId.make(id)
        ),
      leave: (clone, files) => Effect.asVoid(RelayHarness.work(clone, written(files))),
      branchAt: (url, branch) =>
        Effect.map(GitOrigin.branchAt(url, branch), (id) =>
          id === undefined ? undefined : CommitId.make(id)
        ),
      // The relay ignores hooks and settings of a local repository, so a conflicting branch blocks the push.
      shut: (url, isShut) =>
        Effect.asVoid(
          isShut
            ? GitOrigin.git(url, "update-ref", "refs/heads/sandbox", "refs/heads/main")
            : GitOrigin.git(url, "update-ref", "-d", "refs/heads/sandbox")
        )
    })
  )
)

GitRelayContract.suite("host", Layer.provideMerge(stage, RelayHarness.layer()))
