/**
 * Starts a run. The server ends a run whose caller leaves, so this page stays its caller: it asks before it is closed
 * while a run that it started is under way.
 */
"use client"

import { useMutation, useQueryClient } from "@tanstack/react-query"
import { type ReactElement, useState } from "react"
import {
  Button,
  Dialog,
  DialogTrigger,
  Form,
  Heading,
  Input,
  Label,
  Modal,
  ModalOverlay,
  TextArea,
  TextField
} from "react-aria-components"
import { Problem } from "./Parts.tsx"
import type { StartedRun, StartRequest } from "./RunsClient.ts"
import { useSandbox } from "./SandboxProvider.tsx"

/** Runs of this page that have not ended. Module state, because they outlive every component. */
const underWay = new Set<string>()

const ask = (event: BeforeUnloadEvent) => event.preventDefault()

const attend = async ({ ended, runId }: StartedRun) => {
  underWay.add(runId)
  window.addEventListener("beforeunload", ask)
  await ended
  underWay.delete(runId)
  if (underWay.size === 0) window.removeEventListener("beforeunload", ask)
}

/** Longest prompt, in characters. The server has a limit of its own. */
const promptCharsMax = 100_000

const requestOf = (graphId: string, form: HTMLFormElement): StartRequest => {
  const data = new FormData(form)
  const text = (name: string) => String(data.get(name) ?? "").trim() || undefined
  return { graphId, prompt: text("prompt") ?? "", model: text("model"), repository: text("repository") }
}

export const StartRun = ({
  graphId,
  name,
  onStarted
}: {
  readonly graphId: string
  readonly name: string
  readonly onStarted?: (runId: string) => void
}): ReactElement => {
  const { client, scope } = useSandbox()
  const queries = useQueryClient()
  const [isOpen, setOpen] = useState(false)
  const { error, isPending, mutate, reset } = useMutation({
    mutationFn: (asked: StartRequest) => client.start(asked),
    onSuccess: (started) => {
      void attend(started)
      setOpen(false)
      void queries.invalidateQueries({ queryKey: ["@cogni/sandbox-page", scope, "runs"] })
      onStarted?.(started.runId)
    }
  })
  return (
    <DialogTrigger
      isOpen={isOpen}
      onOpenChange={(open) => {
        reset()
        setOpen(open)
      }}
    >
      <Button className="cs-button cs-primary" aria-label={`Start ${name}`}>
        Start
      </Button>
      <ModalOverlay className="cs-overlay">
        <Modal className="cs-modal">
          <Dialog>
            <Heading slot="title">Start {name}</Heading>
            <Form
              onSubmit={(event) => {
                event.preventDefault()
                mutate(requestOf(graphId, event.currentTarget))
              }}
            >
              <TextField name="prompt" className="cs-field" isRequired autoFocus maxLength={promptCharsMax}>
                <Label>What the agent has to do</Label>
                <TextArea rows={6} />
              </TextField>
              <TextField name="model" className="cs-field" maxLength={200}>
                <Label>Model (default: the server's)</Label>
                <Input spellCheck="false" />
              </TextField>
              <TextField name="repository" className="cs-field" type="url" maxLength={2000}>
                <Label>Repository to work in (default: none)</Label>
                <Input spellCheck="false" placeholder="https://github.com/acme/app" />
              </TextField>
              <p className="cs-note">
                The run ends when this page is closed or reloaded before it has ended.
              </p>
              {error === null ? null : <Problem error={error} />}
              <div className="cs-actions">
                <Button type="submit" className="cs-button cs-primary" isPending={isPending}>
                  {isPending ? "Starting…" : "Start"}
                </Button>
                <Button className="cs-button" slot="close">
                  Close
                </Button>
              </div>
            </Form>
          </Dialog>
        </Modal>
      </ModalOverlay>
    </DialogTrigger>
  )
}
