"""The admin, where people sign in, and the dashboard."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("sidekiq/", include("sidekiq_py.contrib.django.urls")),
]
