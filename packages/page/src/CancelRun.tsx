/** Cancels a run, after a question. */
"use client"

import { useMutation, useQueryClient } from "@tanstack/react-query"
import type { ReactElement } from "react"
import { Button, Dialog, DialogTrigger, Heading, Modal, ModalOverlay } from "react-aria-components"
import { Problem } from "./Parts.tsx"
import { useSandbox } from "./SandboxProvider.tsx"

export const CancelRun = ({ runId }: { readonly runId: string }): ReactElement => {
  const { client, scope } = useSandbox()
  const queries = useQueryClient()
  const { error, isPending, isSuccess, mutateAsync, reset } = useMutation({
    mutationFn: () => client.cancel(runId),
    onSettled: () => queries.invalidateQueries({ queryKey: ["@cogni/sandbox-page", scope] })
  })
  if (isSuccess) return <span role="status">Cancelling…</span>
  return (
    <DialogTrigger onOpenChange={() => reset()}>
      <Button className="cs-button cs-danger">Cancel run</Button>
      <ModalOverlay className="cs-overlay" isDismissable>
        <Modal className="cs-modal">
          <Dialog role="alertdialog">
            {({ close }) => (
              <>
                <Heading slot="title">Cancel this run?</Heading>
                <p>
                  The agent is ended at once. What it has written so far is kept, and its commits are not
                  delivered.
                </p>
                {error === null ? null : <Problem error={error} />}
                <div className="cs-actions">
                  <Button
                    className="cs-button cs-danger"
                    isPending={isPending}
                    onPress={() => void mutateAsync().then(close, () => undefined)}
                  >
                    {isPending ? "Cancelling…" : "Cancel run"}
                  </Button>
                  <Button className="cs-button" autoFocus onPress={close}>
                    Keep running
                  </Button>
                </div>
              </>
            )}
          </Dialog>
        </Modal>
      </ModalOverlay>
    </DialogTrigger>
  )
}
