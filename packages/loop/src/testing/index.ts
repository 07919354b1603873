export * as ToolBehaviour from "./ToolBehaviour.ts"
export * as ToolContract from "./ToolContract.ts"
export * as ToolContractState from "./ToolContractState.ts"
export * as ToolHarness from "./ToolHarness.ts"
