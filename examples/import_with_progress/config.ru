# frozen_string_literal: true

# The same program in Ruby, with nothing but Rack. The page, the batch and the jobs are those of `main.py`.
#
#     sidekiq-py ruby-support > sidekiq_py.rb
#     puma config.ru                          # this program
#     sidekiq -r ./jobs.rb -q ruby_imports    # its jobs; if a worker serves the queue of jobs.py, it uses those, too
#
# Accounts and sessions are up to your own program: this one lets everyone in.

require "csv"
require "json"
require "sidekiq/api"
require_relative "jobs"

class Import
  PAGE = File.join(__dir__, "page.html")
  MOST_BYTES = 20_000_000
  COLUMNS = 3
  PYTHON_QUEUE = "imports"
  PUSHED_AT_ONCE = 1000

  class BadFile < StandardError; end

  def call(env)
    case [env["REQUEST_METHOD"], env["PATH_INFO"]]
    in ["GET", "/"] then page
    in ["PUT", "/imports"] then upload(env)
    in ["GET", %r{\A/imports/[\w-]+\z}] then page
    in ["GET", %r{\A/imports/([\w-]+)/events\z}] then events($1)
    in ["GET", %r{\A/imports/([\w-]+)/rows\z}] then rows($1, query(env))
    in ["POST", %r{\A/imports/([\w-]+)/retry\z}] then json(200, retried: SidekiqPy::Batch.new($1).retry_failed)
    else json(404, error: "there is nothing here")
    end
  end

  private

  def page
    [200, {"content-type" => "text/html; charset=utf-8"}, [File.read(PAGE)]]
  end

  # The page's script sends the file as the request body.
  def upload(env)
    body = env["rack.input"].read(MOST_BYTES + 1).to_s
    return json(413, error: "the file has more than #{MOST_BYTES} bytes") if body.bytesize > MOST_BYTES

    json(200, bid: open_import(query(env).fetch("name", "import"), body.force_encoding("UTF-8")))
  rescue BadFile, CSV::MalformedCSVError, ArgumentError => error
    json(400, error: error.message)
  end

  # Enqueues a job for each row and returns the batch's id.
  def open_import(name, text)
    rows = CSV.parse(text).each.with_index(1).map do |row, number|
      raise BadFile, "line #{number} has #{row.size} columns; it must have name, e-mail and country" if row.size != COLUMNS
      [number, *row.map(&:to_s)]
    end
    raise BadFile, "the file is empty" if rows.empty?

    ours, theirs = python_serves? ? rows.partition { |number, *| number.even? } : [rows, []]
    batch = SidekiqPy::Batch.new
    batch.description = name
    batch.track = true
    batch.jobs do
      push({"class" => RubyImportRow}, ours)
      push({"class" => "ImportRow", "queue" => PYTHON_QUEUE, "retry" => 5}, theirs)
    end
    batch.bid
  end

  def push(job, rows)
    rows.each_slice(PUSHED_AT_ONCE) { |slice| Sidekiq::Client.push_bulk(job.merge("args" => slice)) }
  end

  def python_serves?
    Sidekiq::ProcessSet.new.any? { |process| process["queues"].include?(PYTHON_QUEUE) }
  end

  def events(bid)
    # nginx keeps events back until they fill a buffer, unless told not to.
    headers = {"content-type" => "text/event-stream", "cache-control" => "no-store", "x-accel-buffering" => "no"}
    [200, headers, Events.new(bid)]
  end

  # A page of the rows in one state. Pass the `next` of one page as the `after` of the following one.
  def rows(bid, query)
    json(200, SidekiqPy::Batch.new(bid).rows.page(query.fetch("state", "failed"), after: query["after"]&.to_i))
  rescue SidekiqPy::Batch::Error => error
    json(400, error: error.message)
  end

  def query(env)
    URI.decode_www_form(env["QUERY_STRING"]).to_h
  end

  def json(status, told)
    [status, {"content-type" => "application/json"}, [JSON.generate(told)]]
  end
end

# Sends the state of the bar and the counters as server-sent events whenever it changes. Each stream occupies a thread of
# the server.
class Events
  SECONDS = 0.3

  def initialize(bid)
    @bid = bid
  end

  def each
    last = nil
    loop do
      status = SidekiqPy::Batch.new(@bid).status
      told = JSON.generate("description" => status.description, "total" => status.total, "jobs" => SidekiqPy::Batch.new(@bid).rows.counts)
      # Sending a comment shows whether the client is still connected.
      yield((told == last) ? ": \n\n" : "data: #{told}\n\n")
      last = told
      sleep(SECONDS)
    end
  rescue SidekiqPy::Batch::Gone
    yield "event: gone\ndata: {}\n\n"
  end
end

run Import.new
