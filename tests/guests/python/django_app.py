"""Django in one file, as WSGI and as ASGI."""

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

settings.configure(
    SECRET_KEY="not one",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)
count = 0


def root(request):
    global count
    count += 1
    return JsonResponse({"count": count})


@csrf_exempt
def length(request):
    return JsonResponse({"length": len(request.body)})


def stream(request):
    return StreamingHttpResponse("%d\n" % number for number in range(3))


def raises(request):
    raise RuntimeError("in the view")


async def waits(request):
    return HttpResponse("waited")


urlpatterns = [
    path("", root),
    path("length", length),
    path("stream", stream),
    path("raises", raises),
    path("waits", waits),
]
application = get_wsgi_application()
asynchronous = get_asgi_application()
