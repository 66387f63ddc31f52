"""
The dashboard in Django's URLs:

    urlpatterns = [path("sidekiq/", include("sidekiq_py.contrib.django.urls"))]

`SIDEKIQ_PY_WEB` in the settings holds the keyword arguments of `sidekiq_py.web.asgi_app`. `authorize` may be a dotted
path; it receives Django's request. Without `authorize`, accounts and tokens, superusers are operators, and no one else
has access.
"""

from django.urls import re_path

from sidekiq_py.contrib.django.dashboard import dashboard

app_name = "sidekiq_py"
urlpatterns = [re_path(r"^(?P<path>.*)$", dashboard, name="dashboard")]
