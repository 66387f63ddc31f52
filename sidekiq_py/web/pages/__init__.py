"""The pages, one module each. A page reads and acts only through `sidekiq_py.api`."""

from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.pages import audit, bulk, busy, job, job_sets, metrics, overview, queues, sign_in

HANDLERS: tuple[Handler, ...] = (
    *overview.HANDLERS,
    *busy.HANDLERS,
    *queues.HANDLERS,
    *job_sets.HANDLERS,
    *job.HANDLERS,
    *metrics.HANDLERS,
    *bulk.HANDLERS,
    *audit.HANDLERS,
    *sign_in.HANDLERS,
)
