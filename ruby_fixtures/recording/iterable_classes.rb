# frozen_string_literal: true

# Loaded where Sidekiq has iterable jobs. Each item is a number; the deed says at which one the process is told to stop, as
# at a deploy, or the job raises.
module StoppableIterations
  def each_iteration(item, deed, _count, at = nil)
    raise FixtureError, "item #{item}" if deed == "raise_at" && item == at

    _context.terminate if deed == "stop_at_each" || (deed == "stop_at" && @_executions == 1 && item == at)
  end
end

class CountingJob
  include Sidekiq::IterableJob
  include StoppableIterations

  def build_enumerator(_deed, count, *_more, cursor:)
    array_enumerator((0...count).to_a, cursor: cursor)
  end
end

# Its cursor is an object and not a number.
class PagesJob
  include Sidekiq::IterableJob

  def build_enumerator(_deed, _at, cursor:)
    first = cursor ? cursor["page"] : 0
    (first...4).lazy.map { |page| ["page #{page}", {"page" => page, "of" => 4.0}] }.to_enum
  end

  def each_iteration(item, deed, at)
    _context.terminate if deed == "stop_at" && item == "page #{at}"
  end
end
