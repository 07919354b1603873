/** Starts a run, which lives on when the page is closed. */
"use client"

import { useMutation, useQueryClient } from "@tanstack/react-query"
import { type ReactElement, useRef, useState } from "react"
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
import type { StartRequest } from "./RunsClient.ts"
import { useSandbox } from "./SandboxProvider.tsx"

/** Longest prompt, in characters. The server has a limit of its own. */
const promptCharsMax = 100_000

const requestOf = (graphId: string, form: HTMLFormElement): StartRequest => {
  const data = new FormData(form)
  const text = (name: string) => String(data.get(name) ?? "").trim() || undefined
  return { graphId, prompt: text("prompt") ?? "", model: text("model"), repository: text("repository") }
}

/** Random hexadecimal digits. `randomUUID` needs HTTPS. */
const newKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join(
    ""
  )

/**
 * Keys of starts: the same request has the same key until it was answered with a run, so that a press that is repeated
 * after a lost answer starts nothing twice.
 */
const useKeys = () => {
  const last = useRef<{ readonly text: string; readonly key: string }>(undefined)
  return {
    keyOf: (asked: StartRequest) => {
      const text = JSON.stringify(asked)
      if (last.current?.text !== text) last.current = { text, key: newKey() }
      return last.current.key
    },
    forget: () => {
      last.current = undefined
    }
  }
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
  const keys = useKeys()
  const { error, isPending, mutate, reset } = useMutation({
    mutationFn: (asked: StartRequest) => client.start(asked, keys.keyOf(asked)),
    onSuccess: (started) => {
      keys.forget()
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
              <p className="cs-note">The run goes on when this page is closed. Cancel it on its own page.</p>
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
