# frozen_string_literal: true

# Sidekiq 7 and later: a configuration with capsules, a fresh one for each part.
module Engine
  class << self
    # Where handlers and limits are kept.
    def settings
      Sidekiq.default_configuration
    end

    # The limits of the dead set.
    def dead_limits
      %i[dead_timeout_in_seconds dead_max_jobs].to_h { |name| [name.to_s, settings[name]] }
    end

    # Set other limits of the dead set for the block.
    def with_dead_limits(limits)
      kept = limits.to_h { |name, _| [name, settings[name]] }
      settings.merge!(limits)
      yield
    ensure
      settings.merge!(kept)
    end

    # Set other defaults for all jobs for the block.
    def with_default_job_options(options)
      kept = Sidekiq.default_job_options
      Sidekiq.default_job_options = options
      yield
    ensure
      Sidekiq.instance_variable_set(:@default_job_options, kept)
    end

    # Metrics as the server keeps them, of the jobs that run within the block; written when it is over.
    def with_metrics
      tracker = Sidekiq::Metrics::ExecutionTracker.new(settings)
      value = with_server_middleware([Sidekiq::Metrics::Middleware, tracker]) { yield }
      [tracker, value]
    end

    # Run server middleware in what `run_next` runs within the block.
    def with_server_middleware(*entries)
      @server_middleware = entries
      yield
    ensure
      @server_middleware = []
    end

    # One round of the poller: everything that is due by now.
    def promote
      Sidekiq::Scheduled::Enq.new(settings).enqueue_jobs
    end

    # Another limit of retries within the block. 7.x looks for it in the default configuration alone.
    def with_max_retries(count)
      kept = settings[:max_retries]
      @max_retries = settings[:max_retries] = count
      yield
    ensure
      @max_retries = nil
      settings[:max_retries] = kept
    end

    # A manager with *threads* threads on *queue*; stops by force when the block is over.
    def hard_stop(queue, threads:)
      manager = Sidekiq::Manager.new(configured([queue], concurrency: threads).default_capsule)
      manager.start
      yield
      manager.stop(Process.clock_gettime(Process::CLOCK_MONOTONIC))
    end

    # A launcher that never started its threads; `beat` and `clear` are asked for one by one. What it measures is held still.
    #
    # @param queues [Array] names, or pairs of name and weight
    # @param capsules [Hash] more capsules: { name => [queues, concurrency] }
    def launcher(queues, concurrency:, rss_kb:, rtt_us:, capsules: {}, embedded: false)
      config = configured(queues, concurrency: concurrency)
      capsules.each do |name, (its_queues, its_concurrency)|
        config.capsule(name) { |capsule| capsule.queues, capsule.concurrency = its_queues, its_concurrency }
      end
      Sidekiq::Launcher.new(config, embedded: embedded).tap do |launcher|
        launcher.define_singleton_method(:memory_usage) { |_pid| rss_kb }
        launcher.define_singleton_method(:check_rtt) { rtt_us }
      end
    end

    # Fetch the next job of *queue* and give it back.
    def give_back_next(queue)
      configured([queue], concurrency: 1).default_capsule.fetcher.retrieve_work.requeue
    end

    def managers(launcher)
      launcher.managers
    end

    private

    def process_next(queue)
      capsule = configured([queue], concurrency: 1).default_capsule
      work = capsule.fetcher.retrieve_work or raise "queue #{queue} is empty"
      yield work
      process(Sidekiq::Processor.new(capsule) {}, work)
    end

    def configured(queues, concurrency:)
      config = Sidekiq::Config.new(tag: "fixtures", timeout: 0, labels: Set.new)
      dead_limits.each { |name, limit| config[name.to_sym] = limit }
      config[:max_retries] = @max_retries if @max_retries
      config.logger = Sidekiq.logger
      config.error_handlers.replace([on_error])
      config.death_handlers.replace([on_death])
      (@server_middleware || []).each { |entry| config.server_middleware.add(*entry) }
      config.default_capsule { |capsule| capsule.queues, capsule.concurrency = queues, concurrency }
      config
    end
  end
end
