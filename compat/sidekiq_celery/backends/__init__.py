"""
Where results are kept, under the names and in the bytes of Celery.

`base` is the interface that the rest calls, `redis` what most use. kombu is imported for the first result that is read,
or that its json has to write.
"""
