"""Looks at the request: chooses status, headers and body."""


def header(headers, name, default):
    for key, value in headers:
        if key == name:
            return value
    return default


def total(query):
    result = 0
    for part in query.split("&"):
        if part.startswith("n="):
            if not part[2:].isdigit():
                raise ValueError("n is not a number")
            result += int(part[2:])
    return result


def on_init():
    print("Ready for requests")


def on_client_request(method, path, query, headers, body):
    text = [("content-type", "text/plain; charset=utf-8")]
    if path == "/":
        return 200, text, "Hello, " + header(headers, "user-agent", "you") + "\n"
    if path == "/sum":
        return 200, text, str(total(query)) + "\n"
    if path == "/upper":
        if method == "POST":
            return 200, text, body.upper()
        return 405, [("allow", "POST")], ""
    if path == "/old":
        return 301, [("location", "/")], ""
    return 404, text, "There is nothing at " + path + "\n"
