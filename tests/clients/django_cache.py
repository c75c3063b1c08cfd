"""Django's cache framework over a versioned store: Django's own backend, and django-redis."""

import os

import django
from django.conf import settings
from django.core.cache import caches

ADDRESS = f"redis://{os.environ['FONDACO_RESP']}"


def location(backend):
    # Django's keys are PREFIX:VERSION:KEY, so the prefix is the store.
    return {"BACKEND": backend, "LOCATION": ADDRESS, "KEY_PREFIX": "carts", "TIMEOUT": 100}


def main():
    settings.configure(
        CACHES={
            "default": location("django.core.cache.backends.redis.RedisCache"),
            "django-redis": location("django_redis.cache.RedisCache"),
        }
    )
    django.setup()
    for name in ("default", "django-redis"):
        check(caches[name])


def check(cache):
    cache.delete_many(["a", "b", "n", "once"])
    assert cache.get("a", "absent") == "absent"
    cache.set("a", {"name": "Venezia"}, timeout=60)
    assert cache.get("a") == {"name": "Venezia"}
    assert cache.add("a", "other") is False and cache.add("once", "first") is True
    # One backend returns the keys that failed, the other returns nothing.
    assert not cache.set_many({"a": 1, "b": [2]})
    assert cache.get_many(["a", "b", "absent"]) == {"a": 1, "b": [2]}
    cache.set("n", 1, timeout=None)
    assert cache.incr("n", 5) == 6 and cache.decr("n") == 5
    assert cache.touch("a", 50) is True and cache.touch("absent", 50) is False
    assert cache.has_key("b") and "absent" not in cache
    assert cache.get_or_set("once", "second") == "first"
    assert cache.delete("a") is True and cache.get("a") is None
    cache.close()


main()
