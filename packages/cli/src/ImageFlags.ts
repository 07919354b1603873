/** The flags of `images`. */
import { Argument, Flag } from "effect/cli"
import * as Flags from "./Flags.ts"

/** Flags of `images build`. */
export const build = {
  names: Argument.String("name").pipe(
    Argument.withDescription("Image to build in addition: an agent, such as codex"),
    Argument.variadic()
  ),
  all: Flags.toggle("all", "Build every image"),
  only: Flags.toggle("only", "Build only the images that are named, and what they are built on"),
  noCache: Flags.toggle("no-cache", "Build again, for newer packages with the same recipe"),
  base: Flags.orUndefined(
    Flags.text("base", "IMAGE", "Make the base from this image, which must be Debian bookworm").pipe(
      Flag.mapEffect(Flags.filled("--base", "Name an image, such as debian:bookworm-slim, or leave it out"))
    )
  ),
  quiet: Flags.quiet,
  output: Flags.output
}

/** Flags of `images pull`. */
export const pull = {
  images: Argument.String("image").pipe(
    Argument.withDescription(
      "Image as HOST/REPOSITORY@sha256:DIGEST (default: those that the environment names so)"
    ),
    Argument.variadic()
  ),
  output: Flags.output
}
