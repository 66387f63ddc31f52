"""
The bridge: moves messages from Celery's own queues into Sidekiq's layout while old producers still publish, and back.

*read → judge → claim → write → forget.* A route reads what lies in the queues and changes nothing by that. A judge
(`forward`, `backward`) says what becomes of each message, and writes nothing either: it is moved, kept in the dead set
as unreadable, or left where it is. `transfer` then moves it. Within one Redis that is one script. Between servers a
message is claimed (out of the queue, into a hash beside it, in one step), written at the destination together with a
mark, and forgotten: a bridge that is killed leaves the claim, which the next one finishes, and the mark keeps it from
writing twice.
"""
