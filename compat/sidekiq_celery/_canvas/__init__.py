"""
The parts of `sidekiq_celery.canvas`, which is the way in.

`signature` knows no other kind of signature; `kinds` tells them apart by their registration, so that chain, group and
chord, which are made of each other, need not import each other.
"""
