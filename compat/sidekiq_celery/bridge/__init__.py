"""
The bridge: moves messages from Celery's own queues into Sidekiq's layout while old producers still publish, and back.

*read → judge → claim → write → forget.* A route reads the messages in the queues without changing anything. A judge
(`forward`, `backward`) decides what happens to each message, and writes nothing either: it is moved, put into the dead
set as unreadable, or left where it is. `transfer` then moves it. Within one Redis that takes one script. Between
servers, a message is claimed (moved from the queue into a hash next to it, in one step), written at the destination
together with a mark, and then forgotten. A bridge that is killed leaves its claim; the next bridge finishes it, and the
mark prevents a second write.
"""
