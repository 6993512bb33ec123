"""Flask, from a function that makes the application."""

from flask import Flask, Response, jsonify, request

count = 0


def create_app():
    made = Flask(__name__)

    @made.get("/")
    def root():
        global count
        count += 1
        return jsonify(count=count)

    @made.post("/length")
    def length():
        return jsonify(length=len(request.get_data()))

    @made.get("/stream")
    def stream():
        return Response(("%d\n" % number for number in range(3)), mimetype="text/plain")

    @made.get("/raises")
    def raises():
        raise RuntimeError("in the handler")

    return made
