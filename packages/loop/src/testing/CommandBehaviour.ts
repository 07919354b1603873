/**
 * What the commands of `ToolContract` and of the `ExecutorContract` of sessions do: named once, and said once for a
 * shell and once for memory.
 */
import type { CommandLine } from "@cogni/sandbox-core/Executor"
import type { Program, ProgramIo } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { quoted } from "@cogni/sandbox-core/testing/Behaviour"
import { Effect, Stream } from "effect"
