/** Endpoints that propose changes of personalities and skills, as pull requests to the repository of the configuration. */
import {
  Personality,
  PersonalityEdit,
  PersonalityName,
  Skill,
  SkillEdit,
  SkillName
} from "@cogni/sandbox-sessions/config/Personality"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Authentication } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import { Readable } from "./RunsApi.ts"

export const NewPersonality = Schema.Struct({ name: PersonalityName, ...Personality.fields }).annotate({
  identifier: "NewPersonality"
})

export const NewSkill = Schema.Struct({ name: SkillName, ...Skill.fields }).annotate({
  identifier: "NewSkill"
})

export const ProposedChange = Schema.Struct({
  /** `unchanged`: the configuration already has this content, and nothing was pushed. */
  status: Schema.Literals(["proposed", "unchanged"]),
  path: Schema.String,
  baseBranch: Schema.String,
  branch: Schema.optionalKey(Schema.String),
  pullRequestUrl: Schema.optionalKey(Schema.String),
  /** Whether the pull request was already open. */
  existing: Schema.optionalKey(Schema.Boolean)
}).annotate({ identifier: "ProposedChange" })

const error = [
  Problem.Invalid,
  Problem.Denied,
  Problem.NotFound,
  Problem.Conflict,
  Problem.TooLarge,
  Problem.TooMany,
  Problem.Unavailable
]

const params = { name: Schema.String.annotate({ description: "the name, as in the configuration" }) }

const annotated = (summary: string) =>
  OpenApi.annotations({
    summary,
    description:
      "Needs a grant that may propose changes and that allows the repository of the configuration. Nothing takes " +
      "effect before people have merged the pull request and deployed the configuration. A repeated request finds " +
      "the branch and the pull request of the first."
  })

export class Proposals extends HttpApiGroup.make("proposals")
  .add(
    HttpApiEndpoint.post("createPersonality", "/personalities", {
      payload: NewPersonality,
      success: ProposedChange,
      error
    }).annotateMerge(annotated("Propose a new personality")),
    HttpApiEndpoint.patch("editPersonality", "/personalities/:name", {
      params,
      payload: PersonalityEdit,
      success: ProposedChange,
      error
    }).annotateMerge(annotated("Propose a change of a personality")),
    HttpApiEndpoint.post("createSkill", "/skills", {
      payload: NewSkill,
      success: ProposedChange,
      error
    }).annotateMerge(annotated("Propose a new skill")),
    HttpApiEndpoint.patch("editSkill", "/skills/:name", {
      params,
      payload: SkillEdit,
      success: ProposedChange,
      error
    }).annotateMerge(annotated("Propose a change of a skill"))
  )
  .middleware(Readable)
  .middleware(Authentication) {}
