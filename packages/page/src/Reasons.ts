/** Explains reasons to people, and says what to do. Pure. A reason that is not here is shown without more words. */

const words: Readonly<Record<string, string>> = {
  TimedOut:
    "The agent was still running at the end of its time. Raise the time limit, or give it less to do.",
  OomKilled:
    "The kernel killed a process of the sandbox because memory ran out. Raise the memory limit; files in /tmp count as memory.",
  PidsExhausted: "The kernel refused the sandbox another process. Raise the limit of processes.",
  OutputLimitExceeded:
    "The agent wrote more output than its limit. Raise the output limit, or let it write to files.",
  DiskFull:
    "The run added more to its workspace than its limit. Raise the disk limit, or delete files that it does not need.",
  BudgetExceeded: "A model budget was spent. Raise the budget of the run or of its grant.",
  ExfiltrationSuspected:
    "A planted secret was seen leaving the sandbox, so the run was stopped. Read the audit before you trust its work.",
  InvalidSpec: "The request of the run is invalid.",
  WorkspaceFailed: "The workspace of the run cannot be used.",
  RuntimeUnavailable:
    "The container engine did not answer. The operator of this server can check it with cogni-sandbox doctor.",
  ImageNotFound:
    "The image of the agent is not on this host. The operator can build it with cogni-sandbox images.",
  ContainerFailed: "The engine refused or lost the container, or it was stopped from outside.",
  ProxyFailed: "The connection to the model could not be set up, or failed. Try again.",
  PostureMismatch: "The sandbox isolation check failed, so the agent was not started.",
  StoreUnavailable: "The database of runs was not reachable, so nothing was started. Try again.",
  AgentFailed: "The agent ended with an error. Its output shows more.",
  Aborted: "The run was ended by its caller, or by its server.",
  PolicyRefused: "The push policy refuses what the agent committed. The commits are kept on the host.",
  PushRefused: "The origin refused the commits. They are kept on the host.",
  PullRequestFailed: "The commits were pushed, and the pull request could not be opened.",
  ModelNotGranted: "The grant does not allow this model.",
  ToolNotGranted: "The grant does not allow a tool that was asked for.",
  RepositoryNotGranted: "The grant does not allow this repository.",
  SandboxDisabled: "Sandboxes are disabled on this server."
}

export const explain = (reason: string): string | undefined =>
  Object.hasOwn(words, reason) ? words[reason] : undefined
