/**
 * The Lua program of an nginx that serves many runs: which run a request belongs to, and what that run may do.
 *
 * It knows a run by the socket that a request arrived on, or by a token that the host has signed. A request that
 * belongs to no run, to a removed one or to an expired one is refused before anything else is decided. A socket is used
 * for one run only, and a token too, so nothing of a removed run can ever belong to another.
 *
 * The host registers and removes runs over one connection to the control socket, which no sandbox can reach. When that
 * connection ends, all runs are refused, and the container ends. All values are in the memory of one worker process: if
 * it is replaced, its successor knows no run.
 */

/** Names of the nginx variables through which the program and the configuration speak. */
export const variables = {
  /** Number of the socket that the request arrived on; empty for the socket of tokens. */
  slot: "cogni_slot",
  /** Number of the counted call. */
  call: "cogni_call",
  /** ID of the run. */
  run: "cogni_run",
  /** Number of the run's files: its log, and its relay. */
  place: "cogni_place",
  /** `1` if the request is logged. */
  logged: "cogni_logged",
  /** `OK` if the whole answer has passed. */
  ended: "cogni_ended",
  /** Prefix of the values of the headers, numbered from 1. */
  header: "cogni_header_"
} as const

interface SharedProgramOptions {
  /** Number of headers that each run has. */
  readonly headersTotal: number
  /** Sockets of runs, numbered from 0. */
  readonly slotsMax: number
  /** Secret with which the host signs tokens. */
  readonly tokenSecret: Uint8Array
}

/** Size of a control line that is certainly not from the host, in bytes. */
export const lineBytesMax = 512 * 1024

/** Size of a token, in bytes. */
const tokenBytesMax = 256

export const render = ({ headersTotal, slotsMax, tokenSecret }: SharedProgramOptions): string =>
  [
    "",
    `local secret = ngx.decode_base64("${Buffer.from(tokenSecret).toString("base64")}")`,
    `local headers_total, slots_max = ${headersTotal}, ${slotsMax}`,
    program
  ].join("\n")

const program = String.raw`local hmac = require "openssl.hmac"
local program, runs, slots, tokens, calls = {}, {}, {}, {}, {}
local calls_total, is_open, is_taken = 0, false, false

local function signed(text)
  local digest = ngx.encode_base64(hmac.new(secret, "sha256"):final(text), true)
  return (digest:gsub("[+/]", { ["+"] = "-", ["/"] = "_" }))
end

-- Compares in a time that does not depend on where the texts differ.
local function is_same(one, other)
  if #one ~= #other then return false end
  local differences = 0
  for index = 1, #one do
    differences = bit.bor(differences, bit.bxor(one:byte(index), other:byte(index)))
  end
  return differences == 0
end

-- Returns the token of a request. A token that is sent twice, or with a different one, counts as missing.
local function token_of()
  local headers, problem = ngx.req.get_headers(64)
  if problem ~= nil then return nil end
  local bearer, key = headers["authorization"], headers["x-api-key"]
  if bearer ~= nil then
    if type(bearer) ~= "string" then return nil end
    bearer = bearer:match("^[Bb]earer ([^ ]+)$")
    if bearer == nil or (key ~= nil and key ~= bearer) then return nil end
    return bearer
  end
  return type(key) == "string" and key or nil
end

local function by_token()
  local token = token_of()
  if token == nil or #token > ${tokenBytesMax} then return nil end
  local id, expiry, signature = token:match("^([a-z0-9-]+)%.(%d+)%.([A-Za-z0-9_-]+)$")
  if id == nil or not is_same(signature, signed(id .. "." .. expiry)) then return nil end
  if tonumber(expiry) <= ngx.time() then return nil end
  return tokens[id]
end

local function run_of_request()
  if not is_open then return nil end
  local slot = ngx.var.${variables.slot}
  local run
  if slot == "" then run = by_token() else run = slots[slot] end
  if run == nil or run.is_removed or run.expires_at <= ngx.time() then return nil end
  return run
end

-- Counts a request for its run. Refuses it if it has no run, or if its run has too many.
local function enter()
  local run = run_of_request()
  if run == nil then return ngx.exit(401) end
  local now = ngx.now()
  local excess = math.max(run.excess - run.rate * math.max(now - run.at, 0) + 1, 0)
  if excess > 4 * run.rate or run.calls >= run.calls_max then return ngx.exit(429) end
  run.excess, run.at, run.calls = excess, now, run.calls + 1
  calls_total = calls_total + 1
  calls[calls_total] = run
  local var = ngx.var
  var.${variables.call} = calls_total
  var.${variables.run} = run.id
  var.${variables.place} = run.place
  var.${variables.logged} = "1"
  return run
end

function program.pass()
  local run = enter()
  local var = ngx.var
  for index = 1, headers_total do
    var["${variables.header}" .. index] = run.headers[index]
  end
end

function program.refuse()
  enter()
  return ngx.exit(403)
end

-- Called for each part of an answer. A run that was removed gets no further part, and without the host, no run does.
function program.filter()
  if ngx.arg[2] then ngx.var.${variables.ended} = "OK" end
  local run = calls[tonumber(ngx.var.${variables.call}) or 0]
  if run ~= nil and (run.is_removed or not is_open) then return ngx.ERROR end
end

-- Called at the end of every request, also of one that was cut off.
function program.ended()
  local number = tonumber(ngx.var.${variables.call})
  local run = number ~= nil and calls[number] or nil
  if run == nil then return end
  calls[number] = nil
  run.calls = run.calls - 1
end

local commands = {}

-- Comparisons with what is no number are false, so such a limit would hold nothing.
local function is_limit(value)
  return value > 0 and value < math.huge
end

function commands.add(words)
  local place, slot, id, expiry = words[1], words[2], words[3], tonumber(words[4])
  local rate, calls_max = tonumber(words[5]), tonumber(words[6])
  if not (place and slot and id and expiry and rate and calls_max) then return "invalid" end
  if not (is_limit(expiry) and is_limit(rate) and is_limit(calls_max)) then return "invalid limits" end
  if #words ~= 6 + headers_total then return "wrong number of headers" end
  if runs[place] ~= nil then return "this place had a run already" end
  if not place:match("^%d+$") or not id:match("^[a-z0-9-]+$") then return "invalid name" end
  local takes_token = slot == "-"
  if takes_token then
    if tokens[id] ~= nil then return "this run had a token already" end
  else
    if not slot:match("^%d+$") or tonumber(slot) >= slots_max then return "no such socket" end
    if slots[slot] ~= nil then return "this socket had a run already" end
  end
  local headers = {}
  for index = 1, headers_total do
    local value = words[6 + index]
    headers[index] = value == "-" and "" or ngx.decode_base64(value)
    if headers[index] == nil then return "invalid header" end
  end
  local run = {
    id = id, place = place, slot = slot, expires_at = expiry, headers = headers,
    rate = rate, calls_max = calls_max, calls = 0, excess = 0, at = ngx.now(), is_removed = false
  }
  runs[place] = run
  if takes_token then tokens[id] = run else slots[slot] = run end
end

-- Sockets and tokens of removed runs stay known, so that none can be used again.
local removed = { is_removed = true, calls = 0 }

-- A run that was never added, because its command was refused, counts as removed.
function commands.remove(words)
  local run = runs[words[1]]
  if run == nil or run.is_removed then return end
  run.is_removed, run.headers = true, {}
  if run.slot == "-" then tokens[run.id] = removed else slots[run.slot] = removed end
  if run.calls == 0 then runs[run.place] = removed end
end

-- Tells how many calls of a run have not ended.
function commands.calls(words)
  local run = runs[words[1]]
  if run == nil then return "unknown" end
  if run.is_removed and run.calls == 0 then runs[words[1]] = removed end
  return nil, run.calls
end

function commands.memory()
  return nil, math.floor(collectgarbage("count") * 1024)
end

local function obey()
  local socket = ngx.req.socket(true)
  socket:settimeouts(nil, 60000, 2147483647)
  while true do
    local line = socket:receive("*l")
    if line == nil or #line > ${lineBytesMax} then break end
    local words = {}
    for word in line:gmatch("[^ ]+") do words[#words + 1] = word end
    local number, name = table.remove(words, 1), table.remove(words, 1)
    local command = commands[name or ""]
    local problem, told = "unknown command", nil
    if command ~= nil then problem, told = command(words) end
    local answer = problem == nil and "cogni-proxy done " or "cogni-proxy refused "
    local sent = socket:send(answer .. number .. " " .. (problem or told or "") .. "\n")
    if sent == nil then break end
  end
end

-- Serves runs as long as it obeys the host. After an error, a command may have been carried out in part.
function program.control()
  if is_taken then return ngx.exit(403) end
  is_taken, is_open = true, true
  local is_sound, problem = pcall(obey)
  is_open = false
  if not is_sound then ngx.log(ngx.CRIT, "the control connection failed: ", problem) end
end

package.loaded["cogni"] = program
`
