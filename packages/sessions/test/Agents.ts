/** Agents with default settings. */
import type { AgentConfig } from "../src/config/AgentConfig.ts"

export const agentNamed = (name: string, said: Partial<AgentConfig> = {}): AgentConfig => ({
  name,
  modelTier: "default",
  toolProfile: "minimal",
  toolOverrides: { allow: [], deny: [] },
  sandbox: true,
  ...said
})
