/**
 * The code of the workflow for the isolate of a worker.
 *
 * The built package contains it. In a checkout, or with another version of the SDK, it is bundled when a worker starts,
 * which takes seconds.
 */
import { type BundleOptions, bundleWorkflowCode, DefaultLogger } from "@temporalio/worker"
import { createRequire } from "node:module"
import { fileURLToPath } from "node:url"
import { built } from "./WorkflowText.ts"

/** Version of the SDK that is installed. */
export const sdkVersion = (): string =>
  (createRequire(import.meta.url)("@temporalio/worker/package.json") as { readonly version: string }).version

/** The module of the workflow. Its extension differs in the published package. */
const module = new URL(
  `./SandboxAgentRun${import.meta.url.slice(import.meta.url.lastIndexOf("."))}`,
  import.meta.url
)

/** Options that the build of the package and the start of a worker share. */
export const optionsOf = (path: string): BundleOptions => ({
  workflowsPath: path,
  // The same module, so that a run stays in its trace.
  workflowInterceptorModules: [path],
  logger: new DefaultLogger("ERROR")
})

export const load = async (): Promise<{ readonly code: string }> =>
  built?.sdkVersion === sdkVersion() ? built : await bundleWorkflowCode(optionsOf(fileURLToPath(module)))
