/** The workflow as one text. The build of the package writes it: `pack/workflow.ts`. A checkout has none. */

interface BuiltWorkflow {
  /** Version of the SDK whose parts the text contains. Another one may not understand it. */
  readonly sdkVersion: string
  readonly code: string
}

export const built: BuiltWorkflow | undefined = undefined
