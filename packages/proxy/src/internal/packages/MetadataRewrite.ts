/** Rewrites the metadata of a package for the sandbox. Pure; runs on a thread of its own for large metadata. */
import * as CargoCrate from "./CargoCrate.ts"
import { type MetadataOutcome, type MetadataRequest, tooMany, unreadable } from "./Metadata.ts"
import * as NpmPackage from "./NpmPackage.ts"
import * as PypiProject from "./PypiProject.ts"

const rewriters = { npm: NpmPackage.rewrite, pypi: PypiProject.rewrite, cargo: CargoCrate.rewrite }

/**
 * No answer of a registry may end the thread, such as one that is nested too deeply. The thread that receives the
 * result has less memory, so files are counted here.
 */
export const rewrite = (request: MetadataRequest): MetadataOutcome => {
  try {
    const outcome = rewriters[request.registry](request)
    const excess = outcome._tag === "Rewritten" ? tooMany(outcome.files) : undefined
    return excess === undefined ? outcome : unreadable(excess)
  } catch {
    return unreadable("the registry's answer cannot be read")
  }
}
