# frozen_string_literal: true

# Sidekiq 6: one hash of options for the whole process, handed to each part.
module Engine
  # What a processor of 6.0 asks its manager for.
  ManagerOfSix = Struct.new(:options)

  class << self
    # Where handlers and limits are kept.
    def settings
      Sidekiq
    end

    # The limits of the dead set.
    def dead_limits
      Sidekiq.options.slice(:dead_timeout_in_seconds, :dead_max_jobs).transform_keys(&:to_s)
    end

    # Set other limits of the dead set for the block.
    def with_dead_limits(limits)
      kept = Sidekiq.options.slice(*limits.keys)
      Sidekiq.options.merge!(limits)
      yield
    ensure
      Sidekiq.options.merge!(kept)
    end

    # Set other defaults for all jobs for the block.
    def with_default_job_options(options)
      kept = Sidekiq.default_worker_options
      Sidekiq.default_worker_options = options
      yield
    ensure
      Sidekiq.instance_variable_set(:@default_worker_options, kept)
    end

    # One round of the poller: everything that is due by now.
    def promote
      Sidekiq::Scheduled::Enq.new.enqueue_jobs
    end

    # Another limit of retries within the block.
    def with_max_retries(count)
      Sidekiq.options[:max_retries] = count
      yield
    ensure
      Sidekiq.options.delete(:max_retries)
    end

    # A manager with *threads* threads on *queue*; stops by force when the block is over.
    def hard_stop(queue, threads:)
      manager = Sidekiq::Manager.new(options(queues: [queue], concurrency: threads))
      manager.start
      yield
      manager.stop(Process.clock_gettime(Process::CLOCK_MONOTONIC))
    end

    # @param queues [Array] names, or pairs of name and weight
    #
    # A launcher that never started its threads; `beat` and `clear` are asked for one by one. What it measures is held still.
    def launcher(queues, concurrency:, rss_kb:, rtt_us:)
      weighted = queues.flat_map { |name, weight| [name] * [weight.to_i, 1].max }
      settings = options(queues: weighted, concurrency: concurrency)
      Sidekiq::Launcher.new(settings).tap do |launcher|
        launcher.define_singleton_method(:memory_usage) { |_pid| rss_kb }
        launcher.define_singleton_method(:check_rtt) { rtt_us }
      end
    end

    # Fetch the next job of *queue* and give it back.
    def give_back_next(queue)
      fetch_of(options(queues: [queue])).retrieve_work.requeue
    end

    def managers(launcher)
      [launcher.manager]
    end

    private

    # From 6.1 on the fetcher is an object and processors are given their options; before, it was a class and they asked
    # their manager.
    def fetch_of(settings)
      since?("6.1") ? settings[:fetch] : Sidekiq::BasicFetch.new(settings)
    end

    def process_next(queue)
      settings = options(queues: [queue])
      work = fetch_of(settings).retrieve_work or raise "queue #{queue} is empty"
      yield work
      given = since?("6.1") ? [nil, settings] : [ManagerOfSix.new(settings)]
      process(Sidekiq::Processor.new(*given), work)
    end

    def options(queues:, **more)
      base = Sidekiq.options.merge(labels: [], tag: "fixtures", timeout: 0, queues: queues, strict: true, **more)
      since?("6.1") ? base.merge(fetch: Sidekiq::BasicFetch.new(base)) : base
    end
  end
end
