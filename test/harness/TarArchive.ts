/** Tar archives in the format ustar, with names and links that no good program would write. */
import { Buffer } from "node:buffer"

const blockBytes = 512

export interface Member {
  readonly name: string
  /** `0` a file (default), `1` a hard link, `2` a symbolic link. */
  readonly type?: "0" | "1" | "2"
  readonly link?: string
  readonly content?: string
}

const octal = (value: number, length: number) => `${value.toString(8).padStart(length - 1, "0")}\0`

const blocksOf = ({ content = "", link = "", name, type = "0" }: Member): Buffer => {
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
export const of = (...members: ReadonlyArray<Member>): Buffer =>
  Buffer.concat([...members.map(blocksOf), Buffer.alloc(2 * blockBytes)])
