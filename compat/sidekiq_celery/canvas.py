"""
Workflows: signatures, and chains, groups and chords of them.

They are created and frozen as in Celery. The messages are smaller: a message names its position in the workflow, and
the workflow itself is stored in Redis (`sidekiq_celery._send.flow_store`).
"""

from sidekiq_celery._workflow.chain import _chain, chain
from sidekiq_celery._workflow.chord import _chord
from sidekiq_celery._workflow.group import group
from sidekiq_celery._workflow.kinds import maybe_unroll_group
from sidekiq_celery._workflow.maps import chunks, xmap, xstarmap
from sidekiq_celery._workflow.signature import Signature, maybe_signature, signature
from sidekiq_celery._workflow.stamping import GroupStampingVisitor, StampingVisitor

__all__ = (
    "GroupStampingVisitor",
    "Signature",
    "StampingVisitor",
    "_chain",
    "chain",
    "chord",
    "chunks",
    "group",
    "maybe_signature",
    "maybe_unroll_group",
    "signature",
    "subtask",
    "xmap",
    "xstarmap",
)

chord = _chord
subtask = signature
maybe_subtask = maybe_signature

for _public in (
    GroupStampingVisitor,
    Signature,
    StampingVisitor,
    _chain,
    _chord,
    chain,
    chunks,
    group,
    maybe_signature,
    signature,
    xmap,
    xstarmap,
):
    # Pickles and error messages should use the name that programs import it by.
    _public.__module__ = __name__
