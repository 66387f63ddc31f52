"""
A Django program with the dashboard under /sidekiq/, for superusers.

    python manage.py migrate
    python manage.py createsuperuser
    REDIS_URL=redis://localhost:6379/0 python manage.py runserver

Sign in at /admin/, then open /sidekiq/.
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
