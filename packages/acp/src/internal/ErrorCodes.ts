/** JSON-RPC codes of the reasons for which the agent refuses a request. */
export const errorCodes = {
  // The request has parameters that this agent cannot fulfil.
  ContentUnsupported: -32602,
  DirectoriesUnsupported: -32602,
  DirectoryRefused: -32602,
  McpServersUnsupported: -32602,
  PromptEmpty: -32602,
  PromptTooLarge: -32602,
  // The request is valid, but not now.
  PromptsExhausted: -32600,
  SessionBusy: -32600,
  SessionsExhausted: -32600,
  // The session is not open.
  SessionUnknown: -32002,
  // The run failed, or could not start.
  RunFailed: -32603
} as const
