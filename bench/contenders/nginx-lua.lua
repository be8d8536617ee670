-- The five operations in nginx's Lua module. The backend is called by a subrequest, which uses nginx's own HTTP client.
-- Each body is decoded only to check that it is JSON, and passed on unchanged.
local cjson = require 'cjson'
cjson.decode_invalid_numbers(false)

local decode = cjson.decode
local capture = ngx.location.capture
local match = string.match

local gateway = {}

local function reply(status, body)
  local header = ngx.header
  ngx.status = status
  header['Content-Type'] = 'application/json'
  header['Content-Length'] = #body
  header['Cache-Control'] = 'no-store'
  header['X-Content-Type-Options'] = 'nosniff'
  ngx.print(body)
end

local function fail(status, message)
  reply(status, '{"error":"' .. message .. '"}')
end

local function succeeded(answer)
  return answer.status >= 200 and answer.status <= 299 and not answer.truncated
end

-- Reads the request's body and checks that it is JSON.
local function has_json_body()
  ngx.req.read_body()
  local body = ngx.req.get_body_data()
  return body ~= nil and (pcall(decode, body))
end

local read_options = { method = ngx.HTTP_GET }
local create_options = { method = ngx.HTTP_POST }
local update_options = { method = ngx.HTTP_PUT }
local delete_options = { method = ngx.HTTP_DELETE }

function gateway.serve_collection()
  local method = ngx.req.get_method()
  if method == 'GET' then
    local answer = capture('/backend/WorkItem', read_options)
    if succeeded(answer) and pcall(decode, answer.body) then
      return reply(200, answer.body)
    end
    return fail(500, 'Failed to fetch work items')
  elseif method == 'POST' then
    if has_json_body() then
      local answer = capture('/backend/WorkItem', create_options)
      if succeeded(answer) and pcall(decode, answer.body) then
        return reply(201, answer.body)
      end
    end
    return fail(500, 'Failed to create work item')
  end
  ngx.header['Allow'] = 'GET, POST'
  fail(405, 'Method not allowed')
end

function gateway.serve_item()
  local method = ngx.req.get_method()
  local segment = ngx.var.uri:sub(17)
  if segment:find('/', 1, true) then
    return fail(404, 'Not found')
  end
  local sign, digits = match(segment, '^%s*([+-]?)0*(%d+)')
  if not digits then
    return fail(400, 'Invalid ID format')
  end
  local path = '/backend/WorkItem/' .. ((sign == '-' and digits ~= '0') and '-' or '') .. digits
  if method == 'GET' then
    local answer = capture(path, read_options)
    if answer.status == 404 then
      return fail(404, 'Work item not found')
    end
    if succeeded(answer) and pcall(decode, answer.body) then
      return reply(200, answer.body)
    end
    return fail(500, 'Failed to fetch work item')
  elseif method == 'PUT' then
    if has_json_body() and succeeded(capture(path, update_options)) then
      return reply(200, '{"success":true}')
    end
    return fail(500, 'Failed to update work item')
  elseif method == 'DELETE' then
    if succeeded(capture(path, delete_options)) then
      return reply(200, '{"success":true}')
    end
    return fail(500, 'Failed to delete work item')
  end
  ngx.header['Allow'] = 'GET, PUT, DELETE'
  fail(405, 'Method not allowed')
end

function gateway.not_found()
  fail(404, 'Not found')
end

return gateway
