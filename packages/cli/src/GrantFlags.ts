/** The flags of `grants create`. */
import { Flag } from "effect/cli"
import * as ConnectionRuleText from "./ConnectionRuleText.ts"
import * as Flags from "./Flags.ts"
import * as ShareFlag from "./ShareFlag.ts"

export const create = {
  user: Flags.text("user", "ID", "User that the runs are for (required)"),
  account: Flags.text("account", "ID", "Billing account that is charged for the runs (required)"),
  graphs: Flags.several(
    "graph",
    "ID",
    "Graph that may be run, such as sandbox:agent; may be repeated (default all)"
  ),
  allowSandbox: Flags.toggle(
    "allow-sandbox",
    "Allow the grant to open sandboxes; without this, sandbox: graphs are refused"
  ),
  expiresSeconds: Flags.duration("expires-in", "Time until the grant expires, such as 12h (default never)"),
  tools: Flags.several(
    "tool",
    "PATTERN",
    "Host tool that runs may call, such as core__get_current_time or core__*; may be repeated (default none)"
  ),
  askTools: Flags.several(
    "ask-tool",
    "PATTERN[:EFFECT]",
    "Host tool of --tool each call of which needs an approval, such as github__* or **:external_side_effect; may be repeated (default none)"
  ),
  closedTools: Flags.several(
    "close-tool",
    "PATTERN[:EFFECT]",
    "Host tool that runs may not call, whatever the other flags open; may be repeated (default none)"
  ),
  readOnly: Flags.toggle(
    "read-only",
    "Let the grant's holder see the account's runs, and change nothing; only with --user, --account, --expires-in and --see-grants"
  ),
  approve: Flags.toggle(
    "approve",
    "Allow the grant's holder to approve and deny tool calls of the account's runs"
  ),
  seeGrants: Flags.toggle(
    "see-grants",
    "Allow the grant's holder to list the grants and connections of the account"
  ),
  propose: Flags.toggle(
    "propose",
    "Allow the grant's holder to propose changes of personalities and skills, as pull requests"
  ),
  models: Flags.several(
    "model",
    "PATTERN",
    "Model that requests may name, such as gpt-5 or openai/*; may be repeated (default those the server offers)"
  ).pipe(Flag.withAlias("m")),
  packages: Flags.several(
    "packages",
    "PATTERN",
    "Packages that runs may install, such as npm:left-pad or npm:@types/*; may be repeated (default none)"
  ),
  repositories: Flags.several(
    "repository",
    "PATTERN",
    "Repository for runs, such as https://github.com/acme/* or /srv/git/**; may be repeated (default none)"
  ),
  connections: Flags.text(
    "connection",
    "NAME[=USE,...]",
    "Connection that runs may use, and for what: fetch, push, pull_request, tool_read, tool_write (default the " +
      "first three); may be repeated (default the server's own connections)"
  ).pipe(Flags.parsed(ConnectionRuleText.parse), Flag.atLeast(0)),
  concurrentRunsMax: Flags.count(
    "max-runs",
    "runs",
    8,
    "Concurrent runs allowed in one server (default the server's limit)"
  ),
  callsMax: Flags.count(
    "max-calls",
    "model calls",
    20,
    "Model calls allowed per run (default no limit of the grant)"
  ),
  inputTokensMax: Flags.count(
    "max-input-tokens",
    "tokens",
    200000,
    "Input tokens allowed per run (default no limit of the grant)"
  ),
  outputTokensMax: Flags.count(
    "max-output-tokens",
    "tokens",
    20000,
    "Output tokens allowed per run (default no limit of the grant)"
  ),
  costUsdMax: Flags.cost(
    "max-cost",
    "Cost of model calls allowed per run, in US dollars (default no limit of the grant)"
  ),
  subagentShareMax: ShareFlag.make("each budget and of the time of a run"),
  stopWhenSpent: Flags.toggle(
    "stop-when-spent",
    "End a run when a budget is exhausted, instead of only refusing its calls"
  ),
  output: Flags.output
}
