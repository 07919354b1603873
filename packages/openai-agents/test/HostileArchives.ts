/** Tar archives that lead out of the directory in which they are extracted. */
import * as TarArchive from "../../../test/harness/TarArchive.ts"

/** All of them try to make a file `escaped` outside the workspace. */
export const archives: Readonly<Record<string, Uint8Array>> = {
  "an absolute name": TarArchive.of({ name: "/tmp/escaped", content: "x" }),
  "a name with ..": TarArchive.of({ name: "../tmp/escaped", content: "x" }),
  "a link to a directory": TarArchive.of(
    { name: "away", type: "2", link: "/tmp" },
    { name: "away/escaped", content: "x" }
  ),
  "a hard link": TarArchive.of(
    { name: "hard", type: "1", link: "/etc/passwd" },
    { name: "hard", content: "x" }
  ),
  "a link above": TarArchive.of(
    { name: "up", type: "2", link: "../home/agent" },
    { name: "up/escaped", content: "x" }
  )
}
