"""A client of the real Celery that sends calls of a Ruby job and prints their ids."""

import json
import os

from project import app

ledger = os.environ["LEDGER"]


def send(word, **options):
    return app.send_task("FixtureJob", ["ledger", ledger, word], queue="default", **options).id


print(json.dumps({"now": send("é"), "later": send("later", countdown=1), "in_an_hour": send("never", countdown=3600)}))
