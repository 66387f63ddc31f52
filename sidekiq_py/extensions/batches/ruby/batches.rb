# Batches of sidekiq_py, for jobs and programs in Ruby.
#
#     batch = SidekiqPy::Batch.new
#     batch.description = "Import 42"
#     batch.on(:success, ImportDone, "import_id" => 42)     # ImportDone.new.on_success(status, options)
#     batch.jobs { ImportRow.perform_async(1) }             # Python jobs too: Sidekiq::Client.push("class" => "import_row", …)
#     batch.status.pending
#
# Jobs pushed within the block belong to the batch. A member is marked when it starts to run, so that a Python worker can push it
# again if its process is killed; when it ends, the batch's counters are updated. All of that is written by the scripts that Python
# uses as well.

require "digest"
require "json"
require "securerandom"
require "sidekiq/api"
require "socket"

module SidekiqPy
  # Raised by a job whose input is bad: it dies at once, with no retry.
  class JobFailed < StandardError; end

  class Batch
    class Error < StandardError; end
    class Gone < Error; end
    class Done < Error; end
    class Closed < Error; end
    class RolledBack < Error; end

    EVENTS = %w[complete success death].freeze
    KEPT_SECONDS = 30 * 24 * 3600

    # The batch that the running job is a member of, or nil.
    def self.current
      payload = Thread.current[:sidekiq_py_member]
      payload && new(payload[Batches::KEY].first)
    end

    attr_reader :bid
    attr_accessor :description, :callback_queue, :expires_in, :track

    # bid: the id of a batch that is already open.
    def initialize(bid = nil)
      @is_new = bid.nil?
      @bid = bid || SecureRandom.hex(10)
      @callbacks = []
      @expires_in = KEPT_SECONDS
      @track = false
    end

    # callback: a class whose `on_<event>(status, options)` is called, or "Class#method". To enqueue a job, give a hash as for a push:
    # {"class" => ImportDone}, or {"class" => "import_done", "queue" => "python"} for one in Python. It is called with the batch's id,
    # the event and the options.
    def on(event, callback, options = {})
      event = event.to_s
      raise ArgumentError, "#{event} is not an event of a batch; use one of #{EVENTS.join(", ")}" unless EVENTS.include?(event)
      raise Error, "batch #{bid} is already open; call `on` before its first block of jobs" unless @is_new
      if callback.is_a?(Class) && !callback.method_defined?("on_#{event}")
        raise ArgumentError, "#{callback} has no method on_#{event}; add it or, to enqueue a Sidekiq job, pass {\"class\" => #{callback}}"
      end

      @callbacks << [event, callback, options]
      self
    end

    # If an exception leaves the block, the batch stays open, so that no callback reports it as done. In Sidekiq's testing modes, which
    # keep jobs away from Redis, no batch is opened and nothing calls back.
    def jobs
      if Batches.testing?
        yield self
        return self
      end
      adding = open
      outer, Thread.current[:sidekiq_py_adding] = Thread.current[:sidekiq_py_adding], adding
      begin
        yield self
      ensure
        Thread.current[:sidekiq_py_adding] = outer
      end
      Batches.step("leave", bid, adding.token) unless adding.number
      self
    end

    def status
      Status.new(bid)
    end

    # The rows of a tracked batch.
    def rows
      Rows.new(bid)
    end

    # Moves its members from `retry` and the dead set back to their queues. Returns how many there were.
    def retry_failed
      [Sidekiq::RetrySet.new, Sidekiq::DeadSet.new].sum { |set| set.scan("*\"#{bid}\"*").to_a.count { |entry| retry_member(entry) } }
    end

    def valid?
      !Sidekiq.redis { |conn| conn.hget(Batches.key(bid), "invalidated_at") }
    end

    def invalidate
      count, waiting, seen = 0, [[bid, "0"]], {bid => true}
      until waiting.empty?
        name, cursor = waiting.pop
        begin
          done, following, *parents = Batches.step("invalidate", name, cursor)
        rescue Gone
          raise if name == bid
          next # A child was deleted meanwhile.
        end
        count += done
        waiting << [name, following] unless following == "0"
        # Another program may have made a batch its own ancestor.
        parents.each { |one| waiting << [one, "0"] if !seen[one] && seen[one] = true }
      end
      count
    end

    def close
      Batches.step("close", bid)
    end

    private

    def retry_member(entry)
      payload = entry.item
      return false unless Batches.membership?(payload) && payload[Batches::KEY].first == bid

      number = payload[Batches::KEY][1]
      track = payload[Batches::TRACKED_KEY] && Sidekiq.redis { |conn| conn.hget("#{Batches.key(bid)}:tracks", number.to_s) }
      return false unless entry.retry

      # If this process is killed before this, the row is corrected when the job begins.
      Batches.step("enqueued_again", bid, number, track) if track
      true
    end

    def open
      payload = Thread.current[:sidekiq_py_member]
      if payload && payload[Batches::KEY].first == bid
        adding = Batches::Adding.new(bid, payload["jid"], payload[Batches::KEY][1])
        who = payload["class"]
      else
        adding = Batches::Adding.new(bid, SecureRandom.hex(8), nil)
        who = "#{Socket.gethostname}:#{Process.pid}"
      end
      outer = Thread.current[:sidekiq_py_adding]
      words = [adding.token, adding.number || "-", who, @is_new ? "1" : "0", (@is_new && outer) ? outer.bid : ""]
      if @is_new
        texts = callback_texts
        fields = {"description" => description.to_s, "expires_in" => expires_in.to_i}
        fields["callback_queue"] = callback_queue if callback_queue
        fields["ms_times"] = "1" if Batches.millisecond_times?
        fields["track"] = "1" if track
        words += [fields.size, *fields.flatten, *texts]
      else
        words << 0
      end
      adding.is_tracked = Batches.step("open", bid, *words) == 2
      @is_new = false
      adding
    end

    def callback_texts
      numbers = Hash.new(0)
      @callbacks.flat_map do |event, callback, options|
        number = numbers[event] + 1
        text = Batches.callback_text(bid, event, number, callback, options, callback_queue)
        next [] unless text

        numbers[event] = number
        ["#{event}:#{number}", text]
      end
    end

    # The rows of a tracked batch; empty for other batches. They are read page by page, never as a whole.
    class Rows
      # In the order of ROW_STATES in the scripts.
      STATES = %w[enqueued working finished failed error dead interrupted invalidated deleted lost].freeze
      STRIDE = 2**33
      TIMES = %w[attempts enqueued_at started_at ended_at at total].freeze

      def initialize(bid)
        @key = Batches.key(bid)
      end

      # The number of rows in each state.
      def counts
        Sidekiq.redis do |conn|
          STATES.each_with_index.to_h { |state, place| [state, conn.zcount("#{@key}:states", place * STRIDE, "(#{(place + 1) * STRIDE}")] }
        end
      end

      # {"rows" => [...], "next" => number}: the rows in a state, by number. Pass `next` as `after` to get the next page; it is nil after
      # the last one. docs/batches.md lists the keys of a row.
      def page(state, after: nil, limit: 100)
        place = STATES.index(state) || raise(Error, "#{state} is not a state of a job; use one of #{STATES.join(", ")}")
        Sidekiq.redis do |conn|
          first, last = place * STRIDE + (after ? after + 1 : 0), "(#{(place + 1) * STRIDE}"
          numbers = Batches.range_by_score(conn, "#{@key}:states", first, last, limit)
          jobs, tracks, errors = %w[jobs tracks errors].map { |name| numbers.empty? ? [] : conn.hmget("#{@key}:#{name}", *numbers) }
          rows = numbers.zip(jobs, tracks, errors).filter_map { |row| row_of(state, *row) if row[1] && row[2] }
          {"rows" => rows, "next" => ((numbers.size == limit) ? numbers.last.to_i : nil)}
        end
      end

      private

      def row_of(state, number, job, track, error)
        told, (times, message) = JSON.parse(job), track.split("\n", 2)
        row = {"number" => number.to_i, "state" => state, "message" => message.to_s, "scheduled_at" => told.delete("at")}
        TIMES.zip(times.split(" ")) { |name, text| row[name] = Float(text, exception: false) }
        row["attempts"] = row["attempts"].to_i
        row["percent"] = percent_of(*row.values_at("at", "total"))
        {"class" => nil, "callback" => nil, "args" => nil}.merge(told, row, "error" => error && JSON.parse(error))
      end

      def percent_of(at, total)
        return unless at

        (total == 0) ? 0 : (at / (total || 100) * 100).to_i
      end
    end

    # A batch's state at one moment.
    class Status
      attr_reader :bid

      def initialize(bid)
        @bid = bid
        @fields = Sidekiq.redis { |conn| conn.hgetall(Batches.key(bid)) }
        raise Gone, "there is no batch #{bid} in this Redis" if @fields.empty?
      end

      def description
        @fields["description"]
      end

      def parent_bid
        @fields["parent"]
      end

      def total
        @fields["total"].to_i
      end

      def pending
        @fields["pending"].to_i
      end

      def failures
        @fields["n:failed"].to_i
      end

      def dead
        @fields["n:dead"].to_i
      end

      def lost
        @fields["n:lost"].to_i
      end

      def invalidated
        @fields["n:invalidated"].to_i
      end

      def created_at
        Time.at(@fields["created_at"].to_f)
      end

      def complete?
        @fields.key?("complete_at")
      end

      def success?
        @fields.key?("success_at")
      end

      def valid?
        !@fields.key?("invalidated_at")
      end


      def dead_jids
        members = Sidekiq.redis { |conn| conn.hgetall("#{Batches.key(bid)}:members") }
        members.values.filter_map { |text| text.delete_prefix("dead:") if text.start_with?("dead:") }
      end

      def data
        {
          "bid" => bid, "description" => description, "total" => total, "pending" => pending, "failures" => failures,
          "dead" => dead, "lost" => lost, "complete" => complete?, "success" => success?, "parent_bid" => parent_bid
        }
      end
    end
  end

  # The implementation of batches; programs use SidekiqPy::Batch.
  module Batches
    KEY = "sidekiq_py_batch"
    # The key of a member whose batch keeps a row for it.
    TRACKED_KEY = "sidekiq_py_tracked"
    MOST_ARGUMENT_BYTES = 2000
    INVALID = "sidekiq_py:batches:invalid"
    PROCESSES = "sidekiq_py:batches:ruby"
    FRESH_SECONDS = 1.0
    SHOWN_CHARACTERS = 500

    LIBRARY = <<'LUA'
@@library@@
LUA
    STEP = LIBRARY + <<'LUA'
@@step@@
LUA
    PUSH = LIBRARY + <<'LUA'
@@ruby_push@@
LUA
    ENDS = LIBRARY + <<'LUA'
@@ruby_end@@
LUA
    DIGESTS = [STEP, PUSH, ENDS].to_h { |script| [script, Digest::SHA1.hexdigest(script)] }.freeze
    ERRORS = {
      "BATCHGONE" => [Batch::Gone, "there is no batch %s in this Redis: it has expired, was deleted, or was never opened"],
      "BATCHDONE" => [Batch::Done, "all jobs of batch %s have succeeded, and its callbacks are enqueued; make a new batch"],
      "BATCHCLOSED" => [Batch::Closed, "batch %s takes no more jobs here: it was closed by hand while its block was running"],
      "BATCHROLLEDBACK" => [Batch::RolledBack, "Redis has lost its last writes to batch %s, as in a failover, and other jobs have the " \
        "number of this one. It was not enqueued: push it again"]
    }.freeze
    MAJOR = Sidekiq::VERSION.to_i

    class << self
      def key(bid)
        "sidekiq_py:batch:#{bid}"
      end

      def runs_key
        "#{PROCESSES}:#{identity}"
      end

      def testing?
        defined?(Sidekiq::Testing) && (Sidekiq::Testing.fake? || Sidekiq::Testing.inline?)
      end

      # The identity of Sidekiq's server in Redis. The module that provides it depends on the release.
      def identity
        @identity = nil if @pid != Process.pid
        @pid = Process.pid
        @identity ||= Class.new { include(Sidekiq.const_defined?(:Component) ? Sidekiq::Component : Sidekiq::Util) }
          .allocate.identity
      end

      def step(name, bid, *words)
        Sidekiq.redis { |conn| evaluate(conn, STEP, [key(bid)], [name, *words]) }
      end

      def evaluate(conn, script, keys, arguments)
        send_script(conn, "evalsha", DIGESTS.fetch(script), keys, arguments)
      rescue => error
        raise_own(error) unless error.message.start_with?("NOSCRIPT")
        begin
          send_script(conn, "eval", script, keys, arguments)
        rescue => refusal
          raise_own(refusal)
        end
      end

      def range_by_score(conn, key, first, last, limit)
        return conn.zrangebyscore(key, first, last, limit: [0, limit]) if MAJOR < 7

        conn.call("ZRANGEBYSCORE", key, first, last, "LIMIT", 0, limit)
      end

      def membership?(payload)
        bid, number = payload[KEY] if payload[KEY].is_a?(Array)
        bid.is_a?(String) && bid.match?(/\A[A-Za-z0-9_-]{1,64}\z/) && number.is_a?(Integer) && number.between?(0, 2**32 - 1)
      end

      def callback?(payload)
        payload[KEY].size == 3
      end

      # Stores a job's bytes while it runs. The same job may run twice at a time. If Redis refuses this, as a full one does, it would
      # refuse a retry as well, and the job would be lost: so it runs unmarked.
      def start(payload, queue)
        field = "#{payload["jid"]}/#{SecureRandom.hex(4)}"
        text = "#{queue}\n#{Sidekiq.dump_json(payload)}"
        Sidekiq.redis do |conn|
          conn.pipelined do |pipeline|
            pipeline.sadd(PROCESSES, [identity])
            pipeline.hset(runs_key, field, text)
          end
        end
        field
      rescue => error
        Sidekiq.logger.warn("sidekiq_py: could not mark that #{payload["jid"]} is running: #{error.message}")
        field
      end

      # Updates its row, if there is one, which costs a round trip. A failure to write it does not fail the job.
      def begins(payload)
        return unless payload[TRACKED_KEY]

        bid, number = payload[KEY]
        step("working", bid, number, payload.key?("failed_at") ? "1" : "0")
      rescue => error
        Sidekiq.logger.warn("sidekiq_py: could not note in its row that #{payload["jid"]} is running: #{error.message}")
      end

      # The JSON that a row keeps of a pushed job.
      def row(payload)
        told = {"jid" => payload["jid"], "class" => (payload["wrapped"] || payload["class"]).to_s, "queue" => payload["queue"]}
        told["at"] = payload["at"].to_f if payload["at"]
        args = payload["args"]
        args = args.first["arguments"] if payload["wrapped"] && args.is_a?(Array) && args.first.is_a?(Hash)
        told["args"] = args if JSON.generate(args).bytesize <= MOST_ARGUMENT_BYTES
        JSON.generate(told)
      end

      # Moves a job to the dead set, unless it has `dead: false`, and calls its death handlers. If the process is killed after this, its
      # mark remains, and it runs again.
      def refuse(payload, queue, error)
        now = millisecond_times? ? (Time.now.to_f * 1000).to_i : Time.now.to_f
        told = {"queue" => queue, "error_message" => message_of(error), "error_class" => error.class.name}
        count = payload["retry_count"]
        told.merge!(count ? {"retry_count" => count + 1, "retried_at" => now} : {"retry_count" => 0, "failed_at" => now})
        payload = payload.merge(told)
        Sidekiq::DeadSet.new.kill(Sidekiq.dump_json(payload), notify_failure: false) unless payload["dead"] == false
        (death_handlers - [method(:died)]).each do |handler|
          handler.call(payload, error)
        rescue => refusal
          # Like Sidekiq: the other handlers are called, and the job stays dead.
          Sidekiq.logger.error("sidekiq_py: a death handler of #{payload["jid"]} raised #{refusal.class}: #{message_of(refusal)}")
        end
        Sidekiq.logger.warn("#{payload["class"]} #{payload["jid"]} has bad input: #{message_of(error)}")
      end

      def finish(payload, field, state, error = nil, row = nil)
        bid, number = payload[KEY]
        words = [field, state, number, payload["jid"], error ? about(payload, error) : "", *row]
        Sidekiq.redis { |conn| evaluate(conn, ENDS, [key(bid), runs_key], words) }
      end

      # Counts a failed run. The mark is removed only after Sidekiq has written the failure.
      def count_failure(payload, field, error)
        marks = Thread.current[:sidekiq_py_failed]
        return finish(payload, field, "failed", error) unless marks

        bid, number = payload[KEY]
        step("ends", bid, "failed", number, payload["jid"], about(payload, error))
        marks << field
      end

      def unmark(fields)
        Sidekiq.redis { |conn| conn.hdel(runs_key, fields) } unless fields.empty?
      rescue => error
        # The jobs are where Sidekiq has put them, and will run once more when this process is gone.
        Sidekiq.logger.warn("sidekiq_py: marks of failed jobs are still there: #{error.message}")
      end

      def died(payload, error)
        return unless membership?(payload)

        bid, number = payload[KEY]
        step("ends", bid, "dead", number, payload["jid"], error ? about(payload, error) : "")
      end

      # Members of an invalidated batch end without running; callbacks of its children do run.
      def invalid?(bid)
        now = Process.clock_gettime(::Process::CLOCK_MONOTONIC)
        if @invalid.nil? || now - @invalid_at > FRESH_SECONDS
          @invalid = Sidekiq.redis { |conn| conn.zrange(INVALID, 0, -1) }.to_h { |one| [one, true] }
          @invalid_at = now
        end
        @invalid.key?(bid)
      end

      # The block that the jobs of this push belong to, or nil: the block that this thread is in, or the running member if Active Job
      # enqueues the same job again.
      def adding_for(payloads)
        adding = Thread.current[:sidekiq_py_adding]
        return adding if adding

        member = Thread.current[:sidekiq_py_member]
        return unless member && payloads.all? { |payload| same_active_job?(member, payload) }

        again = Adding.new(member[KEY].first, member["jid"], member[KEY][1])
        again.is_tracked = step("open", again.bid, again.token, again.number, member["class"], "0", "", 0) == 2
        again
      rescue Batch::Gone
        nil
      end

      # A callback's queue, followed by the bytes of its job up to `enqueued_at`.
      def callback_text(bid, event, number, callback, options, queue)
        item =
          if callback.is_a?(Hash)
            callback.merge("args" => [bid, event, options])
          elsif callback.is_a?(String) && !callback.include?("#")
            {"class" => callback, "args" => [bid, event, options]}
          else
            target = callback.is_a?(String) ? callback : "#{callback.name}#on_#{event}"
            {"class" => Batch::Callback, "args" => [bid, event, options, target]}
          end
        item["queue"] = queue if queue
        item["jid"] = Digest::SHA1.hexdigest("#{bid}:#{event}:#{number}")[0, 24]
        name, list, bytes = captured { Sidekiq::Client.push(item) }.last
        return unless name
        raise Batch::Error, "the callback #{callback} cannot be scheduled" unless name == "LPUSH"

        "#{list.delete_prefix("queue:")}\n#{bytes.sub(/,"enqueued_at":[0-9.eE+-]+\}\z/, "")}"
      end

      def death_handlers
        Sidekiq.respond_to?(:default_configuration) ? Sidekiq.default_configuration.death_handlers : Sidekiq.death_handlers
      end

      def millisecond_times?
        MAJOR > 7
      end

      private

      # redis-namespace, used up to Sidekiq 6, only recognizes commands by method name.
      def send_script(conn, name, text, keys, arguments)
        words = arguments.map(&:to_s)
        return conn.public_send(name, text, keys, words) if MAJOR < 7

        conn.call(name.upcase, text, keys.size, *keys, *words)
      end

      def raise_own(error)
        code, bid = error.message.split(" ", 3)
        kind, text = ERRORS[code]
        raise error unless kind

        raise kind, format(text, bid)
      end

      def about(payload, error)
        JSON.generate(
          "class" => (payload["wrapped"] || payload["class"]).to_s, "error_class" => error.class.name,
          "error_message" => message_of(error), "at" => Time.now.to_i
        )
      end

      def message_of(error)
        error.message.to_s.dup.force_encoding("UTF-8").scrub("?")[0, SHOWN_CHARACTERS]
      rescue
        "(no message)"
      end

      def same_active_job?(member, payload)
        id = active_job_id(member)
        id && id == active_job_id(payload)
      end

      def active_job_id(payload)
        first = payload["args"].is_a?(Array) ? payload["args"].first : nil
        first["job_id"] if payload.key?("wrapped") && first.is_a?(Hash)
      end

      def captured
        Thread.current[:sidekiq_py_capture] = []
        yield
        Thread.current[:sidekiq_py_capture]
      ensure
        Thread.current[:sidekiq_py_capture] = nil
      end
    end

    # An entered block; used by one thread.
    class Adding
      FIRST_BLOCK = 16
      LARGEST_BLOCK = 8192

      attr_reader :bid, :token, :number, :pool
      attr_accessor :is_tracked

      def initialize(bid, token, number)
        @bid, @token, @number = bid, token, number
        @pool = Sidekiq.redis_pool
        begin_anew
      end

      # Reserves numbers for *count* jobs. Returns the first one, and the arguments of the script.
      def place(count, score)
        begin_anew if @pid != ::Process.pid
        if @end - @next < count
          length = [count, @length].max
          @length = [2 * length, LARGEST_BLOCK].min
          @start = @next = Batches.step("reserve", bid, length, @sender)
          @end = @start + length
        end
        first = @next
        @next += count
        previous, @mark = @mark, "#{@start}+#{@next - @start}:#{@sender}"
        [first, [@start, @next - @start, count, score, number ? "1" : "0", token, previous, @end, @sender, @mark]]
      end

      # A child forked in the block is another sender; otherwise its slices would carry its parent's marks, and some would not be pushed.
      def begin_anew
        @pid = ::Process.pid
        # After a failover that has lost a reservation, another sender may reserve the same block.
        @sender = SecureRandom.hex(6)
        @start = @next = @end = 0
        @length = FIRST_BLOCK
        @mark = ""
      end
    end

    # Records the commands that Sidekiq's client would send.
    class Recorder
      attr_reader :commands

      def initialize
        @commands = []
      end

      def method_missing(name, *arguments)
        words = arguments.flatten.map(&:to_s)
        @commands << ((name == :call) ? [words.first.upcase, *words.drop(1)] : [name.to_s.upcase, *words])
      end

      def respond_to_missing?(*)
        true
      end
    end

    # Prepended to Sidekiq's client; runs after all client middleware.
    module Client
      # For a script, whose commands take some 8,000 words at most. `push_bulk` of Sidekiq 6 sends all jobs at once, and later releases
      # as many as `batch_size` says.
      MOST_JOBS = 1000

      private

      def raw_push(payloads)
        capture = Thread.current[:sidekiq_py_capture]
        if capture
          capture.concat(SidekiqPy::Batches::Client.recorded { |recorder| atomic_push(recorder, payloads) })
          return true
        end
        fresh = payloads.reject { |payload| payload.key?(KEY) }
        adding = fresh.empty? ? nil : SidekiqPy::Batches.adding_for(fresh)
        return super unless adding
        return payloads.each_slice(MOST_JOBS).all? { |slice| raw_push(slice) } if payloads.size > MOST_JOBS

        first, words = adding.place(fresh.size, fresh.map { |payload| payload["at"].to_f }.max.ceil)
        rows = adding.is_tracked ? [first, *fresh.map { |payload| SidekiqPy::Batches.row(payload) }] : []
        words += [rows.size, *rows]
        fresh.each.with_index(first) do |payload, number|
          payload[KEY] = [adding.bid, number]
          payload[TRACKED_KEY] = true if adding.is_tracked
        end
        keys = [SidekiqPy::Batches.key(adding.bid)]
        recorded = SidekiqPy::Batches::Client.recorded { |recorder| atomic_push(recorder, payloads) }
        recorded.each do |name, key, *rest|
          keys << key unless keys.include?(key)
          words += [rest.size + 2, name, keys.index(key) + 1, *rest]
        end
        SidekiqPy::Batches::Client.with_connection(@redis_pool) do |conn|
          SidekiqPy::Batches.evaluate(conn, SidekiqPy::Batches::PUSH, keys, words)
        end
        true
      rescue Batch::RolledBack
        # The next push reserves other numbers.
        fresh.each { |payload| [KEY, TRACKED_KEY].each { |key| payload.delete(key) } }
        adding.begin_anew
        raise
      rescue Batch::Gone
        block = Thread.current[:sidekiq_py_adding]
        raise unless block && block.pool.with { |conn| conn.hget(SidekiqPy::Batches.key(block.bid), "created_at") }
        raise Batch::Error, "a job in the block of batch #{block.bid} is pushed to another Redis than the batch's; push it outside"
      end

      def self.recorded
        recorder = Recorder.new
        yield recorder
        recorder.commands
      end

      # Sends once more if the connection broke. The slice leaves a mark, so it is pushed only once.
      def self.with_connection(pool)
        tries = 0
        begin
          pool.with { |conn| yield conn }
        rescue *CONNECTION_ERRORS
          tries += 1
          retry if tries == 1
          raise
        end
      end

      CONNECTION_ERRORS = [
        (::Redis::BaseConnectionError if defined?(::Redis::BaseConnectionError)),
        (::RedisClient::ConnectionError if defined?(::RedisClient::ConnectionError))
      ].compact.freeze
    end

    # Prepended to the client of `Sidekiq.transactional_push!`. A push that waited for the commit would come after the block, as no
    # member of the batch. So it does not wait, as in a batch of Sidekiq Pro.
    module TransactionAwareClient
      def push(item)
        Thread.current[:sidekiq_py_adding] ? @redis_client.push(item) : super
      end
    end

    # Prepended to Active Job since Rails 7.2, which by default enqueues after the commit, too.
    module ActiveJobs
      private

      def raw_enqueue
        return super unless Thread.current[:sidekiq_py_adding]

        ActiveJob::Enqueuing.instance_method(:raw_enqueue).bind_call(self)
      end
    end

    # Prepended to Active Job. `retry_on StandardError` or `discard_on StandardError`, which base classes have, is not meant for bad input.
    module Refusals
      def rescue_with_handler(error)
        super unless error.is_a?(JobFailed)
      end
    end

    # Wraps each run, outside all other server middleware.
    class Server
      # Errors that are not failures: the job goes back to its queue.
      GOES_BACK = [
        ("Sidekiq::Shutdown" if Sidekiq.const_defined?(:Shutdown)),
        ("Sidekiq::Job::Interrupted" if Sidekiq.const_defined?(:Job) && Sidekiq::Job.const_defined?(:Interrupted)),
        "Sidekiq::JobRetry::Skip"
      ].compact.freeze

      def call(_job, payload, queue)
        return yield unless Batches.membership?(payload)

        field = Batches.start(payload, queue)
        if !Batches.callback?(payload) && Batches.invalid?(payload[KEY].first)
          Batches.finish(payload, field, "invalidated")
          return
        end
        Batches.begins(payload)
        outer, Thread.current[:sidekiq_py_member] = Thread.current[:sidekiq_py_member], payload
        begin
          result = yield
        rescue JobFailed => error
          Batches.refuse(payload, queue, error)
          Batches.finish(payload, field, "dead", error, "failed")
          return
        rescue Exception => error # rubocop:disable Lint/RescueException
          failed(payload, field, error)
          raise
        ensure
          Thread.current[:sidekiq_py_member] = outer
        end
        # If this fails, Sidekiq retries the job, and the batch still waits for it.
        Batches.finish(payload, field, "succeeded")
        result
      rescue JobFailed => error
        # Of a job that is no member.
        Batches.refuse(payload, queue, error)
      end

      private

      def failed(payload, field, error)
        goes_back = error.class.ancestors.any? { |kind| GOES_BACK.include?(kind.name) }
        goes_back ? Batches.finish(payload, field, "attempt") : Batches.count_failure(payload, field, error)
      rescue => refusal
        # The job's own error is raised. The audit finds members that were not counted.
        Sidekiq.logger.error("sidekiq_py: the failure of #{payload["jid"]} was not counted: #{refusal.message}")
      end
    end

    # Wraps a run and Sidekiq's handling of its failure. If the process is killed between the two, the job is still in the mark. If the
    # retry cannot be written, the mark stays, because the job is nowhere else then.
    module Retry
      def global(*)
        Thread.current[:sidekiq_py_failed] = []
        super
      rescue Sidekiq::JobRetry::Handled, Sidekiq::Shutdown
        Batches.unmark(Thread.current[:sidekiq_py_failed])
        raise
      ensure
        Thread.current[:sidekiq_py_failed] = nil
      end

      private

      # Until 8.0.7 Sidekiq calls no death handler for a job that is discarded. It then returns nil, and otherwise what it has written.
      def process_retry(_job, payload, _queue, error)
        super.tap { |written| Batches.died(payload, error) if written.nil? }
      end
    end

    def self.register
      Sidekiq::Client.prepend(Client)
      # Sidekiq has it since 6.5.
      Sidekiq::TransactionAwareClient.prepend(TransactionAwareClient) if Sidekiq.const_defined?(:TransactionAwareClient)
      if defined?(ActiveSupport.on_load)
        ActiveSupport.on_load(:active_job) do
          prepend Refusals
          prepend ActiveJobs if ActiveJob.const_defined?(:EnqueueAfterTransactionCommit)
        end
      end
      Sidekiq.configure_server do |config|
        require "sidekiq/job_retry"
        Sidekiq::JobRetry.prepend(Retry)
        config.server_middleware { |chain| chain.prepend Server }
      end
      death_handlers << method(:died)
    end
  end

  class Batch
    # Calls a method of a plain class.
    class Callback
      # Before 6.3 `Sidekiq::Job` was the data API's entry of a queue.
      include((Gem::Version.new(Sidekiq::VERSION) < Gem::Version.new("6.3")) ? Sidekiq::Worker : Sidekiq::Job)

      def perform(bid, event, options, target)
        name, method = target.split("#", 2)
        Object.const_get(name).new.public_send(method || "on_#{event}", Status.new(bid), options)
      end
    end
  end
end

SidekiqPy::Batches.register
