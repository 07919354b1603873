/** Says which resources of living processes keep `prune --all` from removing everything. Pure. */
import { label } from "@cogni/sandbox-core/ResourceLabels"
import type { Labelled } from "@cogni/sandbox-docker/DockerApi"
import { type Refusal, refusal } from "./Failure.ts"
import { plural } from "./Quantity.ts"

type Resource = Pick<Labelled, "labels" | "name">

/** The ID of a sandbox that waits for a run, or of a network that is ready for one. */
const waitingId = /^waiting-[0-9a-f]{32}$/u

/** The label of a container that waited for its run is not that of the run, but its name is. */
const runIdOf = ({ labels, name }: Resource): string =>
  /^cogni-(.+)-agent$/u.exec(name)?.[1] ?? labels[label.run] ?? name

const isWaiting = (one: Resource) => waitingId.test(runIdOf(one))

/** Counts what pools have: sandboxes that wait for runs, and containers that hold a network ready for one. */
const pooledOf = (living: ReadonlyArray<Resource>): string => {
  const waiting = living.filter(isWaiting)
  const networks = waiting.filter(({ labels }) => labels[label.role] === "network").length
  const sandboxes = waiting.length - networks
  return [
    ...(sandboxes === 0 ? [] : [plural(sandboxes, "waiting sandbox", "waiting sandboxes")]),
    ...(networks === 0 ? [] : [plural(networks, "ready network")])
  ].join(" and ")
}

export const refusalOf = (living: ReadonlyArray<Resource>): Refusal => {
  const runs = [...new Set(living.filter((one) => !isWaiting(one)).map(runIdOf))]
  const pooled = pooledOf(living)
  return refusal(
    "input",
    [
      ...(runs.length === 0
        ? []
        : [`${runs.length === 1 ? "a run is" : "runs are"} still active: ${runs.join(", ")}`]),
      ...(pooled === "" ? [] : [`a pool has ${pooled}`])
    ].join("; "),
    runs.length === 0
      ? "End the process with the pool, or end them with --all --force"
      : "Wait until they end, or end them with --all --force"
  )
}
