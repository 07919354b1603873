/**
 * Makes TypeDoc describe what Effect's classes are for.
 *
 * A service is documented by its members, not by the type that it extends. An error is documented by its fields. A
 * module begins with the comment at the top of its file.
 */
import { Comment, Converter, ReflectionKind } from "typedoc"

/** The comment at the top of a file, if imports or another comment follow it. */
const fileComment = (sourceFile) => {
  const [, body] = /^\/\*\*([\s\S]*?)\*\/\s*(?=import |export |\/\*\*)/u.exec(sourceFile?.text ?? "") ?? []
  return body?.replaceAll(/^[ \t]*\*[ \t]?/gmu, "").trim()
}

/** @param {import("typedoc").Application} app */
export const load = (app) => {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, (context) => {
    const { project } = context
    for (const module of project.getReflectionsByKind(ReflectionKind.Namespace)) {
      const symbol = context.getSymbolFromReflection(module)
      const text = fileComment(symbol?.declarations?.[0]?.getSourceFile())
      if (text !== undefined) module.comment = new Comment([{ kind: "text", text }])
    }
    for (const type of project.getReflectionsByKind(ReflectionKind.Class)) {
      const [parent] = type.extendedTypes ?? []
      const members = parent?.typeArguments?.[1]?.declaration
      const inherited = type.children?.filter(
        (child) => child.kindOf(ReflectionKind.Constructor) || child.flags.isStatic
      )
      for (const child of inherited ?? []) project.removeReflection(child)
      delete type.extendedTypes
      if (members === undefined) continue
      for (const child of members.children ?? []) {
        child.parent = type
        type.addChild(child)
      }
    }
    for (const type of project.getReflectionsByKind(ReflectionKind.Interface)) delete type.extendedBy
  })
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => {
    for (const one of project.getReflectionsByKind(ReflectionKind.All)) {
      delete one.inheritedFrom
      delete one.overwrites
    }
  })
}
