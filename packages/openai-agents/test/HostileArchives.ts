/** Tar archives that lead out of the directory in which they are extracted. */
import { Buffer } from "node:buffer"

const blockBytes = 512

interface Member {
  readonly name: string
  readonly type?: "0" | "1" | "2"
  readonly link?: string
  readonly content?: string
}

const octal = (value: number, length: number) => `${value.toString(8).padStart(length - 1, "0")}\0`

const member = ({ content = "", link = "", name, type = "0" }: Member): Buffer => {
  const header = Buffer.alloc(blockBytes)
  header.write(name, 0)
  header.write(octal(0o644, 8), 100)
  header.write(octal(0, 8), 108)
  header.write(octal(0, 8), 116)
  header.write(octal(Buffer.byteLength(content), 12), 124)
  header.write(octal(0, 12), 136)
  header.fill(0x20, 148, 156)
  header.write(type, 156)
  header.write(link, 157)
  header.write("ustar\u000000", 257)
  const sum = header.reduce((one, other) => one + other, 0)
  header.write(`${octal(sum, 7)} `, 148)
  const body = Buffer.alloc(Math.ceil(Buffer.byteLength(content) / blockBytes) * blockBytes)
  body.write(content)
  return Buffer.concat([header, body])
}

/** Makes an archive. */
export const archive = (...members: ReadonlyArray<Member>): Uint8Array =>
  Buffer.concat([...members.map(member), Buffer.alloc(2 * blockBytes)])

/** All of them try to make a file `escaped` outside the workspace. */
export const archives: Readonly<Record<string, Uint8Array>> = {
  "an absolute name": archive({ name: "/tmp/escaped", content: "x" }),
  "a name with ..": archive({ name: "../tmp/escaped", content: "x" }),
  "a link to a directory": archive(
    { name: "away", type: "2", link: "/tmp" },
    { name: "away/escaped", content: "x" }
  ),
  "a hard link": archive({ name: "hard", type: "1", link: "/etc/passwd" }, { name: "hard", content: "x" }),
  "a link above": archive(
    { name: "up", type: "2", link: "../home/agent" },
    { name: "up/escaped", content: "x" }
  )
}
