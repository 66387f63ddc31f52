"""Programs under the Redis users that docs/redis.md recommends."""
